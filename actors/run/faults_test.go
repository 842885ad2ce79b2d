package run

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/family"
)

// laidOut is a run of a small model that is cut into pp stages.
func laidOut(t *testing.T, pp int, said io.Writer) *Run {
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: fmt.Appendf(nil,
		"model: {name: qwen/3-0.6b, init: random, overrides: {hidden_size: 32, num_hidden_layers: 2, head_dim: 8, "+
			"num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 64, vocab_size: 64}}\n"+
			"data: {paths: [none], tokenizer: none, seq_len: 8}\nplan: {pp: %d}\n", pp)})
	require.NoError(t, err)
	r := &Run{cfg: cfg, io: Options{Warnings: said}}
	r.job, err = layout.FromConfig(cfg)
	require.NoError(t, err)
	r.layout, err = layout.New(r.job)
	require.NoError(t, err)
	return r
}

// TestFaultsPlanted: a fault is planted and said to be, or is said to be none, with the reason: never in silence.
func TestFaultsPlanted(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	require.NoError(t, os.WriteFile(gate, []byte("3\n"), 0o600))
	bad := filepath.Join(t.TempDir(), "bad")
	require.NoError(t, os.WriteFile(bad, []byte("three"), 0o600))
	for _, x := range []struct{ fault, says string }{
		{"gate=" + gate, "planted fault gate="}, {"gate=" + bad, "is no fault: want a file with the number"},
		{"gate=" + gate + "2", "no such file"},
		{"stuck=1@3", "planted fault stuck=1@3"}, {"slow=0@1", "planted"}, {"leak=0", "planted"},
		{"slowdata=0@5", "planted"}, {"kill=update@3+100", "planted"},
		{"stuck=2@3", "there is no rank 2"}, {"slow=-1@3", "there is no rank -1"},
		{"leak=7", "no activations go from rank to rank by port 7"}, {"leak=-1", "by port -1"},
		{"slowdata=1@3", "there is no process 1"}, {"kill=forward@1+0", `there is no job "forward"`},
		{"stuck=1", "want leak="}, {"leak=0@3", "want leak="}, {"slow=1@soon", "want leak="},
		{"nonsense=1@1", "want leak="}, {"nonsense", "want leak="},
	} {
		t.Setenv(EnvFault, x.fault)
		var said bytes.Buffer
		r := laidOut(t, 2, &said)
		r.plant(&host.RunOptions{Batches: func(int64, int) ([]family.Microbatch, error) { return nil, nil }})
		require.Contains(t, said.String(), x.says, x.fault)
		require.Contains(t, said.String(), "note: ", x.fault)
	}
	var said bytes.Buffer
	t.Setenv(EnvFault, "leak=0")
	laidOut(t, 1, &said).plant(&host.RunOptions{})
	require.Contains(t, said.String(), "no activations go from rank to rank by port 0",
		"one stage has no edge")
}

// TestFaultGate: data of a step comes when the gate's file has its number, that of evaluations always; a file
// that says nothing any more is an error, and whoever waits at the gate when the run ends waits no longer.
func TestFaultGate(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	let := func(text string) {
		require.NoError(t, os.WriteFile(gate+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(gate+".new", gate)) // nobody reads half of it
	}
	let("2")
	ended := 0
	o := host.RunOptions{Leave: func() { ended++ },
		Batches: func(step int64, dp int) ([]family.Microbatch, error) {
			return make([]family.Microbatch, dp), nil
		}}
	require.Empty(t, plantGate(&o, gate))
	for _, step := range []int64{-7, 1, 2} {
		got, err := o.Batches(step, 3)
		require.NoError(t, err)
		require.Len(t, got, 3)
	}
	came := make(chan error, 1)
	ask := func(step int64) {
		go func() {
			_, err := o.Batches(step, 1)
			came <- err
		}()
	}
	ask(3)
	select {
	case err := <-came:
		t.Fatal("step 3 comes, and 2 may: ", err)
	case <-time.After(20 * gateLooks):
	}
	let("3")
	require.NoError(t, <-came)
	let("many")
	_, err := o.Batches(3, 1)
	require.ErrorContains(t, err, "the gate of a planted fault")
	let("3")
	ask(4)
	o.Leave()
	require.ErrorIs(t, <-came, errLeft)
	o.Leave()
	require.Equal(t, 2, ended)
}
