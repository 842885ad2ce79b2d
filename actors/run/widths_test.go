package run

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
)

// TestRunWidths: with how many replicas a run can do, by what the batch divides by, with as many ranks a
// process as it has, and what each process needs: its budget where there is one.
func TestRunWidths(t *testing.T) {
	const text = `
model:
  name: llama/3.2-1b
  init: random
  overrides: {hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, intermediate_size: 64, vocab_size: 400, max_position_embeddings: 64, rope_scaling: none}
data: {kind: text, paths: ["."], tokenizer: bytes, seq_len: 32}
train: {steps: 24, global_batch: 12, micro_batch: 1}
optimizer: {lr: 1.0e-3}
plan: {pp: 2, dp: 4, procs: 4%s}
`
	widths := func(more string) []Width {
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: fmt.Appendf(nil, text, more)})
		require.NoError(t, err)
		job, err := layout.FromConfig(cfg)
		require.NoError(t, err)
		l, err := layout.New(job)
		require.NoError(t, err)
		return (&Run{cfg: cfg, job: job, layout: l}).widths()
	}
	all := widths(", memory: 1GiB")
	for i, dp := range []int{4, 3, 2, 1} {
		require.Equal(t, dp, all[i].Replicas)
		require.Equal(t, dp, all[i].Procs)
		require.Len(t, all[i].Bytes, dp)
		require.Equal(t, int64(2<<30), all[i].Bytes[dp-1], "two ranks")
	}
	require.Len(t, all, 4)
	require.Empty(t, all[0].Args)
	require.Equal(t, []string{"plan.dp=2", "plan.procs=2"}, all[2].Args)
	free := widths("")
	require.Greater(t, free[0].Bytes[0], int64(10_000), "what is predicted")
	require.Less(t, free[0].Bytes[0], int64(10_000_000))
}
