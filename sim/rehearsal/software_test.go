package rehearsal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology/cost"
)

// TestSoftwareMoves: each setting of a description of software changes what is predicted of some run.
func TestSoftwareMoves(t *testing.T) {
	dense := "model.name=llama/3.2-1b model.overrides.num_hidden_layers=2 data.seq_len=4096 train.precision=bf16 " +
		"train.low_precision=tensor plan.sequence_parallel=true plan.tp=2 plan.dp=2 plan.cp=2 train.global_batch=4"
	experts := "model.name=qwen/3-30b-a3b model.overrides.num_hidden_layers=1 data.seq_len=512 train.precision=bf16 " +
		"plan.dp=16 plan.ep=16 train.global_batch=16"
	moves := map[string][2]string{ // the setting, and of which run
		"attention.kernel": {"fa2", dense}, "attention.ring": {"fa2", dense}, "calls.OP": {"9", dense},
		"traffic.OP": {"9", dense}, "loss.bytes": {"50 B", dense}, "optimizer.traffic": {"3", dense},
		"launch.calls": {"0.5", dense}, "rounding.traffic": {"3", dense}, "tp.overlap": {"products", dense},
		"tp.bits": {"8", dense}, "settings.KEY": {"true", dense}, "memory.reserve": {"0.5", dense},
		"experts.per_expert": {"22 us", experts}, "experts.dispatch": {"once", experts},
	}
	plain := map[string]float64{}
	for _, run := range []string{dense, experts} {
		plain[run] = predicted(t, run, "lfactor")
	}
	for _, key := range cost.SoftwareKeys() {
		m, known := moves[key]
		require.True(t, known, key)
		name := strings.NewReplacer("OP", "rmsnorm", "settings.KEY", "settings.plan.overlap").Replace(key) + "=" + m[0]
		require.NotEqual(t, plain[m[1]], predicted(t, m[1], name), name)
	}
}

// predicted is a step on H100s under software and the memory that a rank gets, as one number.
func predicted(t *testing.T, run, software string) float64 {
	t.Helper()
	m, err := rehearsal.Machine("h100" + rehearsal.Under + software)
	require.NoError(t, err)
	args := append(strings.Fields(run), "model.init=random", "data.tokenizer=none", "data.paths=[none]", "train.steps=1")
	cfg, err := configs.Load(configs.Request{Args: append(args, m.Software.Settings...)})
	require.NoError(t, err)
	sum, err := rehearsal.Simulate(t.Context(), cfg, rehearsal.Options{Machine: m})
	require.NoError(t, err)
	return sum.Step + m.Least()/1e15
}

// TestMachineNamed: a file's name may have a plus, as much as one of software that stands behind it.
func TestMachineNamed(t *testing.T) {
	text, err := configs.ClusterFile("h100")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ours+theirs.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	m, err := rehearsal.Machine(file)
	require.NoError(t, err)
	require.Empty(t, m.Software.Name)
	m, err = rehearsal.Machine(file + rehearsal.Under + "nemo")
	require.NoError(t, err)
	require.Equal(t, "nemo", m.Software.Name)
}

// TestUnsaid: what software sets stands below the run file's and the command's settings.
func TestUnsaid(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.yaml")
	load := func(text string, args ...string) bool {
		require.NoError(t, os.WriteFile(file, []byte("model: {name: llama/3.2-1b, init: random}\n"+
			"data: {paths: [none], tokenizer: none}\n"+text), 0o600))
		cfg, err := configs.Load(configs.Request{File: file, Args: args})
		require.NoError(t, err)
		return cfg.Run.Plan.Overlap
	}
	unsaid := configs.Unsaid + "plan.overlap=true"
	require.True(t, load("", unsaid))
	require.False(t, load("plan: {overlap: false}\n", unsaid))
	require.False(t, load("", "plan.overlap=false", unsaid))
}
