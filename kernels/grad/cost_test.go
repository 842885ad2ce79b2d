package grad_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// forward is the cost of a wide product, a sum and attention over 1,024 tokens of 16 heads of 64, whose scores go
// through memory so many times.
func forward(o grad.Options) (c grad.Cost) {
	o.DType, o.NoGrad = tensor.F32, true
	t := grad.NewTape(o)
	x := t.Input("x", tensor.F32, 1024, 1024)
	y := t.Add(t.Linear(x, t.Param("w", []int{1024, 1024}, -1, 1, true), nil), x)
	h := t.Heads(y, 64)
	cu := t.Data("cu", tensor.I32, 2)
	y = t.Attention(h, h, h, cu, cu, grad.AttentionConfig{Scale: 1, Causal: true})
	t.Output("y", t.Flat(y))
	tr := t.Finish()
	for _, s := range tr.Segments(grad.F) {
		c = c.Plus(s.Cost)
	}
	return c
}

// TestCostsAddUp: traffic of a product hides behind its arithmetic and is not counted, that of a sum is; scores
// in memory are counted once for each pass, and with them all pairs and not those that see each other.
func TestCostsAddUp(t *testing.T) {
	fused, apart := forward(grad.Options{}), forward(grad.Options{Scores: 6})
	require.EqualValues(t, 3*1024*1024*4, fused.Bytes, "the sum reads two tensors and writes one")
	require.EqualValues(t, 6*16*4*1024*1024, apart.Bytes-fused.Bytes, "six passes, 16 heads, four bytes")
	require.Greater(t, apart.Flops, fused.Flops)
	require.Equal(t, fused.Flops, fused.Filled, "nothing is known of the device")
}

// TestCostsOfFewBits: a device is told of products whose operands are rounded to fewer bits, by the call or
// by one before it, and of no others.
func TestCostsOfFewBits(t *testing.T) {
	type kind struct {
		bits   int
		rounds bool
	}
	of := map[kind]int{}
	o := grad.Options{DType: tensor.BF16, Device: func(w kernels.Work) (flops, bytes int64) {
		if w.Products != nil {
			of[kind{w.Bits, w.Rounded}]++
		}
		return w.Flops, 0
	}, InputGrad: func(string) bool { return true }}
	for _, name := range []string{"none", "mxfp8", "nvfp4"} {
		precision, err := kernels.PrecisionOf(name)
		require.NoError(t, err)
		tape := grad.NewTape(o)
		x := tape.Input("x", tensor.BF16, 64, 128)
		x = tape.LowLinear(x, tape.Param("w", []int{256, 128}, -1, 1, true), nil, precision)
		off := tape.Data("off", tensor.I32, 3)
		x = tape.LowGrouped(x, tape.Param("e", []int{2, 64, 256}, -1, 1, true), off, precision)
		tape.Output("y", x)
		tr := tape.Finish()
		for _, phase := range []grad.Phase{grad.F, grad.B} {
			tr.Segments(phase)
		}
	}
	require.Equal(t, of[kind{8, true}], of[kind{4, true}])
	require.Equal(t, of[kind{8, false}], of[kind{4, false}])
	require.Equal(t, of[kind{0, false}], of[kind{8, true}]+of[kind{8, false}])
	require.Positive(t, of[kind{8, true}])
	require.Positive(t, of[kind{8, false}])
	require.Len(t, of, 5)
}

// TestCostsOfDevice: a device is asked for the time of every call that is bound by arithmetic, with its products or its
// tiles of attention, and for no other; what it says is in the cost beside the operations that are done.
// Attention whose scores go through memory is products one after the other: two in the forward, four in the
// backward, which does those of the forward once more where the scores are not kept.
func TestCostsOfDevice(t *testing.T) {
	const rows, heads, width = 1024, 16, 64
	var asked []kernels.Work
	o := grad.Options{Device: func(w kernels.Work) (flops, bytes int64) {
		asked = append(asked, w)
		return 1000, 7
	}}
	fused := forward(o)
	const pairs = rows * (rows + 1) / 2
	require.Equal(t, []kernels.Work{
		{Products: []kernels.Product{{Count: 1, M: rows, N: 1024, K: 1024}}, Flops: 2 * rows * 1024 * 1024,
			Bytes: 3 * 4 * rows * 1024},
		{Flops: 4 * heads * width * pairs, Bytes: 4*4*rows*1024 + 4*rows*heads + 2*2*4,
			Tiles: heads * rows / kernels.AttentionRows, Width: width}}, asked)
	require.EqualValues(t, 2*1000+rows*1024, fused.Filled, "and the sum")
	require.EqualValues(t, 3*rows*1024*4+2*7, fused.Bytes)
	require.Equal(t, forward(grad.Options{}).Flops, fused.Flops)

	products := func(o grad.Options) (out []kernels.Product, flops int64) {
		asked = nil
		o.SeqLen = func(string) int { return rows / 4 }
		_, flops = attends(o, grad.AttentionConfig{Scale: 1})
		for _, w := range asked {
			require.Zero(t, w.Tiles)
			out = append(out, w.Products...)
		}
		return out, flops
	}
	for window, want := range map[int]int64{0: 0, rows / 4: rows / 4, rows: 0} {
		asked = nil
		attends(o, grad.AttentionConfig{Scale: 1, Causal: true, Window: window})
		require.Equal(t, want, asked[0].Window, "a window of all keys is none")
		require.EqualValues(t, width, asked[0].Width)
	}
	o.Scores = 6
	const n, s = 4 * heads, rows / 4
	first := []kernels.Product{{Count: n, M: s, N: s, K: width}, {Count: n, M: s, N: width, K: s}}
	once := append(slices.Clone(first), first...)
	once = append(once, kernels.Product{Count: 2 * n, M: s, N: width, K: s})
	kept, flops := products(o)
	require.Equal(t, once, kept[:5], "then come those of a backward in two parts")
	require.EqualValues(t, 4*2*n*s*s*width, flops)
	o.Recompute = grad.RecomputeSelective
	again, flops := products(o)
	require.Equal(t, append(once, first...), again[:7])
	require.EqualValues(t, 6*2*n*s*s*width, flops)
}
