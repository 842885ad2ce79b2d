package planner

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/search"
)

const middling = `
model:
  name: llama/3.2-1b
  init: random
  overrides: {num_hidden_layers: 8}
data: {paths: [none], tokenizer: none, seq_len: 2048}
train: {steps: 2, global_batch: 64, precision: bf16}
`

// TestBounds: no plan takes less time than its bound says, or fits where its bound says that it does not, and
// the best plans are the same ones whether all are priced or only those that may be among the best.
func TestBounds(t *testing.T) {
	ctx := context.Background()
	ranked := func(variants int) (*Search, []search.Candidate) {
		q := question{text: middling, cluster: "a100", hosts: "1x8"}
		p := q.search(t)
		p.Variants = variants
		all, err := p.Space.Enumerate()
		require.NoError(t, err)
		require.NoError(t, p.priced(ctx, all))
		search.Rank(all)
		return p, all
	}
	p, whole := ranked(1 << 30)
	few, some := ranked(0)
	require.Len(t, some, len(whole))
	require.Less(t, len(few.prices.known), len(p.prices.known)*2/3)
	for i := range Reranked {
		require.Equal(t, whole[i].String(), some[i].String())
		require.Equal(t, whole[i].Step, some[i].Step)
		require.False(t, some[i].Unpriced)
	}
	bounds, err := few.Space.Enumerate()
	require.NoError(t, err)
	require.NoError(t, few.Space.Bounds(bounds))
	exact, err := p.Space.Enumerate()
	require.NoError(t, err)
	require.NoError(t, p.exact(ctx, exact))
	for i := range bounds {
		require.LessOrEqual(t, bounds[i].Step, exact[i].Step, "%v", &exact[i])
		require.True(t, bounds[i].Why == "" || exact[i].Why != "", "%v fits", &exact[i])
	}
}

// TestOverlapPrices: what the closed forms say of sharded weights that are gathered while other layers work
// is what a simulation of all ranks and segments says, and without overlap too.
func TestOverlapPrices(t *testing.T) {
	q := question{text: middling, cluster: "h100", hosts: "1x8"}
	p := q.search(t)
	all, err := p.Space.Enumerate()
	require.NoError(t, err)
	looked := 0
	for _, c := range all {
		if c.PP > 1 || c.TP > 2 || c.Batch != 2 || c.Recompute != "none" || c.Zero < 2 || c.SP || c.CP > 1 {
			continue
		}
		for _, c.Overlap = range []bool{false, true} {
			require.NoError(t, p.Space.Estimate(&c))
			require.NoError(t, p.Simulate(&c))
			full, err := p.rehearsed(context.Background(), &c)
			require.NoError(t, err)
			within := 0.01
			if c.Overlap {
				within = 0.03
			}
			require.InEpsilon(t, full.Step, c.Simulated, within, "%v", &c)
			looked++
		}
	}
	require.GreaterOrEqual(t, looked, 4)
}
