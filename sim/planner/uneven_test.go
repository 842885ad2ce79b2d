package planner

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/search"
)

const lopsided = `
model:
  name: llama/3.2-1b
  init: random
  overrides: {hidden_size: 128, num_hidden_layers: 7, num_attention_heads: 8, num_key_value_heads: 8, head_dim: 64,
    intermediate_size: 512, vocab_size: 32768}
data: {paths: [none], tokenizer: none, seq_len: 512}
train: {steps: 2, global_batch: 16, precision: bf16}
`

// TestUneven: layers that the stages do not divide are shared out all the same. The multiplications of narrow
// layers say little of their time, so that the best plan with a pipeline has other stages than they ask for;
// these are what it is trained with, and the step is as much shorter as all ranks' simulation says.
func TestUneven(t *testing.T) {
	q := question{text: lopsided, cluster: "h100", hosts: "1x4"}
	p := q.search(t)
	p.Exact = 4
	all, err := p.Find(context.Background())
	require.NoError(t, err)
	var best *search.Candidate
	for i := range all {
		c := &all[i]
		require.Equal(t, c.PP > 1 && c.Loops == 1, c.Layers != nil, "%v", c)
		if best == nil && c.Why == "" && c.PP > 1 {
			best = c
		}
	}
	require.NotNil(t, best)
	now, err := p.Space.LayersOf(best)
	require.NoError(t, err)
	require.Equal(t, best.Layers, now)
	bySize := *best
	bySize.Layers = nil
	bySize.Layers, err = p.Space.LayersOf(&bySize)
	require.NoError(t, err)
	require.NotEqual(t, best.Layers, bySize.Layers)
	ctx := context.Background()
	fast, err := p.rehearsed(ctx, best)
	require.NoError(t, err)
	slow, err := p.rehearsed(ctx, &bySize)
	require.NoError(t, err)
	t.Logf("%v: %.4g ms; %v: %.4g ms", best, 1e3*fast.Step, &bySize, 1e3*slow.Step)
	require.Less(t, fast.Step, slow.Step)
	require.InEpsilon(t, fast.Step, best.Simulated, 0.06, "of weight gradients apart 4 % is missing")
	cfg, err := p.under(best)
	require.NoError(t, err)
	require.Equal(t, best.Layers, cfg.Run.Plan.Layers)
}
