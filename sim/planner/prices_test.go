package planner

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/search"
)

// TestPrices: each variant is worked out once, ahead or when it is asked for, and one that cannot be priced
// says so to whoever asks; a search that is told to end prices no more.
func TestPrices(t *testing.T) {
	var mu sync.Mutex
	asked := map[search.Variant]int{}
	bad := errors.New("no such variant")
	work := func(v search.Variant) ([]search.BlockCost, error) {
		mu.Lock()
		defer mu.Unlock()
		if asked[v]++; v.TP == 7 {
			return nil, bad
		}
		return []search.BlockCost{{F: float64(v.TP)}}, nil
	}
	p := prices{known: map[search.Variant]price{}}
	var all []search.Variant
	for tp := range 20 {
		all = append(all, search.Variant{TP: tp})
	}
	steps := 0
	see := func(_ string, done, of int) {
		steps++
		require.Equal(t, []int{steps, 20}, []int{done, of})
	}
	require.NoError(t, p.ahead(context.Background(), all, work, see))
	require.Equal(t, 20, steps)
	for _, v := range append(all, search.Variant{TP: 30}) {
		b, err := p.of(work)(v)
		if v.TP == 7 {
			require.ErrorIs(t, err, bad)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, float64(v.TP), b[0].F)
	}
	require.Len(t, asked, 21)
	for v, n := range asked {
		require.Equal(t, 1, n, "%+v", v)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorContains(t, p.ahead(ctx, []search.Variant{{TP: 99}}, work, see), "interrupted")
	require.NotContains(t, asked, search.Variant{TP: 99})
}

// TestWindowsPriced: layers with windows have as many weights as the others, and take less time with long sequences.
func TestWindowsPriced(t *testing.T) {
	q := question{cluster: "h100", hosts: "1", text: `
model:
  name: gemma/3-1b
  init: random
  overrides: {hidden_size: 256, num_hidden_layers: 7, num_attention_heads: 4, num_key_value_heads: 1, head_dim: 64,
    intermediate_size: 512, vocab_size: 2048, max_position_embeddings: 16384}
data: {paths: [none], tokenizer: none, seq_len: 16384}
train: {steps: 2, global_batch: 1, precision: bf16}
`}
	p := q.search(t)
	blocks, err := p.Space.Profile(search.Variant{TP: 1, Batch: 1, Recompute: "none"})
	require.NoError(t, err)
	require.Len(t, blocks, 9)
	full := 6 // the first five of six layers have windows
	for i := 1; i < 8; i++ {
		require.Equal(t, p.base.Model.Blocks[1].Weight, p.base.Model.Blocks[i].Weight)
		if i != full {
			require.Less(t, 1.5*blocks[i].F, blocks[full].F, "layer %d", i)
		}
	}
}
