package run

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
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

// TestFaultsPlanted: a fault is planted and said to be, or is said to be none, with the reason: never in
// silence.
func TestFaultsPlanted(t *testing.T) {
	for _, x := range []struct{ fault, says string }{
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
		r.plant(&host.RunOptions{Batches: func(int64, int) ([]host.Microbatch, error) { return nil, nil }})
		require.Contains(t, said.String(), x.says, x.fault)
		require.Contains(t, said.String(), "note: ", x.fault)
	}
	var said bytes.Buffer
	t.Setenv(EnvFault, "leak=0")
	laidOut(t, 1, &said).plant(&host.RunOptions{})
	require.Contains(t, said.String(), "no activations go from rank to rank by port 0",
		"one stage has no edge")
}
