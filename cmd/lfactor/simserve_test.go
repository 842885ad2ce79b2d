package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/sim"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/sim/rehearsal"
)

// TestSimServe: with measured steps of 10 ms a client that is alone waits a step for each token; a described machine
// takes at least the time of reading its share of the weights once for each; what cannot be simulated is refused.
func TestSimServe(t *testing.T) {
	t.Parallel()
	served := func(args ...string) (s sim.Served) {
		out, err := simOutput(t, append([]string{"sim", "serve", "-o", "json"}, args...)...)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal([]byte(out), &s))
		return s
	}
	file := filepath.Join(t.TempDir(), "steps.csv")
	require.NoError(t, os.WriteFile(file, []byte("rows,keys,heads,sequences,seconds\n1,100,1,1,0.01\n256,300,1,1,0.01\n"), 0o644))
	s := served("--steps", file, "--clients", "1", "--prompt", "200", "--prompt-spread", "0", "--answer", "9",
		"--answer-spread", "0", "--requests", "5")
	require.Equal(t, map[string]int{"length": 5}, s.Ends)
	require.InDelta(t, 0.01, s.First[0], 1e-6)
	require.InDelta(t, 0.01, s.Between[1], 1e-6)
	require.InDelta(t, 100, s.Tokens, 1)

	model := "../../docs/examples/llama3-405b.yaml"
	m, err := rehearsal.Machine("h100")
	require.NoError(t, err)
	one := served(model, "--cluster", "h100", "--tp", "8", "--clients", "1", "--requests", "3", "--pages", "256")
	read := 405.8e9 * 2 / 8 / (m.Bandwidth * m.Stream)
	require.Greater(t, one.Between[0], read)
	require.Less(t, one.Between[0], 2*read)
	many := served(model, "--cluster", "h100", "--tp", "8", "--clients", "32", "--requests", "64", "--pages", "4096")
	require.Greater(t, many.Tokens, 10*one.Tokens)

	for _, bad := range [][]string{{}, {model, "--steps", file}, {model, "--tp", "2"},
		{model, "--cluster", "h100", "--tp", "99999999"}, {"--steps", file, "--rate", "1", "--clients", "2"},
		{"--steps", file, "--aborts", "0.5"}, {"--steps", file, "--precision", "fp16"}, {"--steps", file, "--prompt", "0"},
		{"--steps", file, "--requests", "9999999"}, {"--steps", file, "--keep", file}} {
		_, err := simOutput(t, append([]string{"sim", "serve"}, bad...)...)
		var e exit.Error
		require.ErrorAs(t, err, &e, "%v: %v", bad, err)
		require.Equal(t, exit.Usage, e.Code, "%v: %v", bad, err)
	}
	_, err = simOutput(t, "sim", "serve", "--steps", shippedRun)
	require.ErrorContains(t, err, "tiny.yaml:1: it is no file of steps")
	require.NoError(t, os.WriteFile(file, []byte("rows,keys,heads,sequences,seconds\n1,100,x,1,0.01\n"), 0o644))
	_, err = simOutput(t, "sim", "serve", "--steps", file)
	require.ErrorContains(t, err, `steps.csv:2: heads: "x" is no number of a step`)
}

// TestSimRolloutsPriced: times of drawing and training come from the run's model and plan on a machine, what flags say
// stands, and more devices a sampler draw faster.
func TestSimRolloutsPriced(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "run.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`model: {name: qwen/3-8b, init: random}
data: {paths: [none], tokenizer: none, seq_len: 2048}
objective: {kind: grpo}
rollout: {group: 8, max_tokens: 1024, staleness: 1}
reward: {kind: math}
train: {steps: 10, global_batch: 64, micro_batch: 1, precision: bf16}
plan: {tp: 4, dp: 2}
checkpoint: {dir: ckpt}
`), 0o644))
	rows := func(args ...string) (all []sim.RolloutsRow) {
		out, err := simOutput(t, append([]string{"sim", "rollouts", file, "--cluster", "h100", "--samplers", "2",
			"--staleness", "0,1", "-o", "json"}, args...)...)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal([]byte(out), &all))
		return all
	}
	one, two, given := rows(), rows("--tp", "2"), rows("--train", "100", "--token", "0.001")
	require.Less(t, one[1].Step, one[0].Step)
	require.Less(t, two[0].Step, one[0].Step)
	require.InDelta(t, 101, given[1].Step, 2)
	for _, bad := range [][]string{{file}, {"--cluster", "h100"}, {"--tp", "2"}, {file, "--cluster", "h100", "--tp", "0"},
		{file, "--cluster", "nowhere"}} {
		_, err := simOutput(t, append([]string{"sim", "rollouts"}, bad...)...)
		require.Error(t, err, "%v", bad)
	}
	_, err := simOutput(t, "sim", "rollouts", "../../docs/examples/llama3-405b.yaml", "--cluster", "h100")
	var e exit.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, exit.Fit, e.Code, err)
}
