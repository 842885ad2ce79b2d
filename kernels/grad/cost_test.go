package grad_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// forward is the cost of a wide product, a sum and attention over 1,024 tokens of 16 heads of 64, whose scores go
// through memory so many times.
func forward(scores float64) (c grad.Cost) {
	t := grad.NewTape(grad.Options{DType: tensor.F32, NoGrad: true, Scores: scores})
	x := t.Input("x", tensor.F32, 1024, 1024)
	y := t.Add(t.Linear(x, t.Param("w", []int{1024, 1024}, -1, 1, true), nil), x)
	h := t.Heads(y, 64)
	cu := t.Data("cu", tensor.I32, 2)
	o := t.Attention(h, h, h, cu, cu, grad.AttentionConfig{Scale: 1, Causal: true})
	t.Output("y", t.Flat(o))
	tr := t.Finish()
	for _, s := range tr.Segments(grad.F) {
		c.Flops, c.Bytes, c.Calls = c.Flops+s.Cost.Flops, c.Bytes+s.Cost.Bytes, c.Calls+s.Cost.Calls
	}
	return c
}

// TestCostsAddUp: traffic of a product hides behind its arithmetic and is not counted, that of a sum is; scores
// in memory are counted once for each pass, and with them all pairs and not those that see each other.
func TestCostsAddUp(t *testing.T) {
	fused, apart := forward(0), forward(6)
	require.EqualValues(t, 3*1024*1024*4, fused.Bytes, "the sum reads two tensors and writes one")
	require.EqualValues(t, 6*16*4*1024*1024, apart.Bytes-fused.Bytes, "six passes, 16 heads, four bytes")
	require.Greater(t, apart.Flops, fused.Flops)
}
