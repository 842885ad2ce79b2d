package grad_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// attends is the work of attention over 1,024 tokens of 16 heads of 64, in its forward and its backward.
func attends(o grad.Options, c grad.AttentionConfig) (fwd, bwd int64) {
	o.DType, o.InputGrad = tensor.F32, func(string) bool { return true }
	t := grad.NewTape(o)
	var out *grad.Value
	t.Block(0, func() {
		in := func(name string) *grad.Value { return t.Input(name, tensor.F32, 1024, 16, 64) }
		cu := t.Data("cu", tensor.I32, 2)
		out = t.Attention(in("q"), in("k"), in("v"), cu, cu, c)
		t.Output("y", out)
	})
	tr := t.Finish()
	for _, s := range tr.Segments(grad.F) {
		fwd += s.Cost.Flops
	}
	for _, s := range tr.Segments(grad.B) {
		bwd += s.Cost.Flops
	}
	return fwd, bwd
}

// TestAttentionWork: attention costs two products for each pair of a query and a key that see each other,
// and five in its backward; sequences that are known to be shorter have fewer pairs, and a window cuts them.
func TestAttentionWork(t *testing.T) {
	const product = 2 * 16 * 64
	seq := func(n int) grad.Options {
		return grad.Options{SeqLen: func(data string) int {
			if data != "cu" {
				t.Errorf("the length of %q is asked for", data)
			}
			return n
		}}
	}
	for name, x := range map[string]struct {
		o     grad.Options
		c     grad.AttentionConfig
		pairs int64
	}{
		"all":            {c: grad.AttentionConfig{}, pairs: 1024 * 1024},
		"causal":         {c: grad.AttentionConfig{Causal: true}, pairs: 1024 * 1025 / 2},
		"four sequences": {o: seq(256), pairs: 4 * 256 * 256},
		"four causal ones": {o: seq(256), c: grad.AttentionConfig{Causal: true},
			pairs: 4 * 256 * 257 / 2},
		"three and a third":          {o: seq(300), pairs: 1024 * 300},
		"one sequence of that many":  {o: seq(1024), pairs: 1024 * 1024},
		"longer ones than there are": {o: seq(2000), pairs: 1024 * 1024},
		"an unknown length":          {o: seq(0), pairs: 1024 * 1024},
		"a window": {c: grad.AttentionConfig{Causal: true, Window: 100},
			pairs: 100*101/2 + (1024-100)*100},
		"a window in each of four": {o: seq(256), c: grad.AttentionConfig{Causal: true, Window: 100},
			pairs: 4 * (100*101/2 + (256-100)*100)},
		"a window as wide as all": {c: grad.AttentionConfig{Causal: true, Window: 1024},
			pairs: 1024 * 1025 / 2},
	} {
		x.c.Scale = 1
		fwd, bwd := attends(x.o, x.c)
		require.Equal(t, 2*product*x.pairs, fwd, name)
		require.Equal(t, 5*product*x.pairs, bwd, name)
	}
}

// TestPairs counts the pairs of queries, the last of some keys, one by one.
func TestPairs(t *testing.T) {
	for queries := 1; queries <= 6; queries++ {
		for keys := queries; keys <= 9; keys++ {
			for window := 0; window <= 10; window++ {
				n := 0
				for i := range queries {
					for k := range keys {
						at := keys - queries + i // the query's own key
						if k <= at && (window == 0 || k > at-window) {
							n++
						}
					}
				}
				a := grad.Attended{Causal: true, Window: window}
				require.EqualValues(t, n, a.Pairs(queries, keys), "%d queries, %d keys, window %d",
					queries, keys,
					window)
			}
		}
	}
}
