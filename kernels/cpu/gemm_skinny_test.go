package cpu

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// thinSizes are rows, columns and length of sums: of adapters, with rests of tiles, sums in parts, rows a few.
var thinSizes = [][3]int{{1024, 16, 576}, {1031, 16, 1100}, {16, 1531, 1024}, {1536, 16, 1027}, {700, 5,
	999},
	{32, 4100, 64}}

// TestThin holds products of few rows or columns to the bits of those that pack both operands.
func TestThin(t *testing.T) {
	for _, k := range levels() {
		be := newBackend(k, 2)
		for _, s := range thinSizes {
			m, n, sum := s[0], s[1], s[2]
			for turned := range 4 {
				for _, acc := range []bool{false, true} {
					side := func(rows int, trans bool) matrix {
						if trans {
							return columnMajor(filled(tensor.F32, sum, rows))
						}
						return rowMajor(filled(tensor.F32, rows, sum))
					}
					x, y := side(m, turned&1 > 0), side(n, turned&2 > 0)
					one, two := filled(tensor.F32, m, n), filled(tensor.F32, m, n)
					run := func(out *tensor.Tensor, f func(r result)) {
						be.mu.Lock()
						defer be.mu.Unlock()
						f(result{v: viewOf(out), ld: n, acc: acc})
					}
					run(one, func(r result) { be.blocked(r, x, y, m, n, sum) })
					done := false
					run(two, func(r result) { done = be.skinny(r, x, y, m, n, sum) })
					name := fmt.Sprintf("%s %v trans=%d acc=%v", k.name, s, turned, acc)
					require.Equal(t, m > n || turned&2 > 0, done, name)
					if done {
						require.True(t, bytes.Equal(one.Bytes(), two.Bytes()), name)
					}
				}
			}
		}
	}
}

// BenchmarkThin gives GF/s of an adapter's products: rank 16, 1024 tokens.
func BenchmarkThin(b *testing.B) {
	be := newBackend(levels()[0], 2)
	x, a, y, dy := filled(tensor.F32, 1024, 576), filled(tensor.F32, 16, 576), filled(tensor.F32, 1024, 16),
		filled(tensor.F32, 1024, 1536)
	up, da, db := filled(tensor.F32, 1536, 16), filled(tensor.F32, 16, 576), filled(tensor.F32, 1536, 16)
	for name, c := range map[string]*kernels.Call{
		"down":    {Op: kernels.Linear, In: []*tensor.Tensor{x, a}, Out: []*tensor.Tensor{y}},
		"up_dx":   {Op: kernels.LinearDX, In: []*tensor.Tensor{dy, up}, Out: []*tensor.Tensor{y}},
		"down_dw": {Op: kernels.LinearDW, In: []*tensor.Tensor{y, x}, Out: []*tensor.Tensor{da}},
		"up_dw":   {Op: kernels.LinearDW, In: []*tensor.Tensor{dy, y}, Out: []*tensor.Tensor{db}},
	} {
		b.Run(name, func(b *testing.B) {
			bench(b, be, c, 2*1024*16*float64(max(lastDim(c.In[0]), lastDim(c.In[1]))), "GF/s")
		})
	}
}
