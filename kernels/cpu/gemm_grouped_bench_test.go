package cpu

import (
	"fmt"
	"testing"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// BenchmarkGrouped multiplies groups of so many rows with 16 matrices of 1408 by 512, in one call and one call a group.
func BenchmarkGrouped(b *testing.B) {
	const g, n, k = 16, 1408, 512
	be := New(1)
	defer be.Close()
	for _, rows := range []int{1, 4, 8, 16, 32, 64, 128} {
		benchGrouped(b, be, tensor.F32, g, n, k, rows)
		benchGrouped(b, be, tensor.BF16, g, n, k, rows)
	}
}

func benchGrouped(b *testing.B, be *Backend, d tensor.DType, g, n, k, rows int) {
	t := g * rows
	x, dy, w, dw := filled(d, t, k), filled(d, t, n), filled(d, g, n, k), tensor.Make(tensor.F32, g, n, k)
	off := tensor.Make(tensor.I32, g+1)
	for i := range off.I32() {
		off.I32()[i] = int32(i * rows)
	}
	for _, c := range []*kernels.Call{{Op: kernels.GroupedLinear, In: ts{x, w, off},
		Out: ts{tensor.Make(d, t, n)}},
		{Op: kernels.GroupedLinearDX, In: ts{dy, w, off}, Out: ts{tensor.Make(d, t, k)}},
		{Op: kernels.GroupedLinearDW, In: ts{dy, x, off}, Out: ts{dw},
			Attr: kernels.Attr{I: [4]int{kernels.Accumulate}}}} {
		rate := func(b *testing.B, f func()) {
			f()
			for b.Loop() {
				f()
			}
			b.ReportMetric(2*float64(t*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		}
		b.Run(fmt.Sprintf("%s/%v/%d/one", c.Op, d, rows),
			func(b *testing.B) { rate(b, func() { be.Run(c) }) })
		b.Run(fmt.Sprintf("%s/%v/%d/each", c.Op, d, rows), func(b *testing.B) {
			rate(b, func() {
				for i := range g {
					be.Run(single(c, i, rows))
				}
			})
		})
	}
}

// single is the call of group i by itself.
func single(c *kernels.Call, i, rows int) *kernels.Call {
	op := map[kernels.Op]kernels.Op{kernels.GroupedLinear: kernels.Linear,
		kernels.GroupedLinearDX: kernels.LinearDX, kernels.GroupedLinearDW: kernels.LinearDW}[c.Op]
	cut := func(t *tensor.Tensor) *tensor.Tensor {
		if len(t.Shape) == 3 {
			return t.RowSlice(i, i+1).Alias(t.Shape[1], t.Shape[2])
		}
		return t.RowSlice(i*rows, (i+1)*rows)
	}
	return &kernels.Call{Op: op, In: ts{cut(c.In[0]), cut(c.In[1])}, Out: ts{cut(c.Out[0])}, Attr: c.Attr}
}
