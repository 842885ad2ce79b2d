package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestLinesApart: lines of a picture that are convolved apart are those of the whole within rounding: with few or odd
// lines Winograd's tiles lie elsewhere, or are too few for its way.
func TestLinesApart(t *testing.T) {
	b := New(1)
	defer b.Close() //nolint:errcheck // it ends threads
	const lines, wide, ch = 24, 24, 32
	x, w := filled(tensor.F32, 1, lines, wide, ch), filled(tensor.F32, ch, ch, 3, 3)
	conv := func(x *tensor.Tensor, before, after int) []float32 {
		c := &kernels.Call{Op: kernels.Conv, In: ts{x, w}}
		one := kernels.Window{Stride: 1, Dilation: 1, Before: 1, After: 1}
		c.Attr.I[2] = one.Pack()
		one.Before, one.After = before, after
		c.Attr.I[1] = one.Pack()
		c.Out = ts{tensor.Make(tensor.F32, 1, x.Shape[1]+before+after-2, wide, ch)}
		b.Run(c)
		return c.Out[0].F32()
	}
	whole := conv(x, 1, 1)
	for _, at := range []int{3, 7, 12} {
		row := wide * ch
		upper := tensor.Of(tensor.F32, x.F32()[:(at+1)*row], 1, at+1, wide, ch)
		lower := tensor.Of(tensor.F32, x.F32()[(at-1)*row:], 1, lines-at+1, wide, ch)
		for i, y := range append(conv(upper, 1, 0), conv(lower, 0, 1)...) {
			require.InDelta(t, whole[i], y, 2e-5, "cut at %d, number %d", at, i)
		}
	}
}
