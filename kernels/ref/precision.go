package ref

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.LowLinear], table[kernels.LowLinearDX], table[kernels.LowLinearDW] = low(linear,
		kernels.OperandsForward),
		low(linearDX, kernels.OperandsDX), low(linearDW, kernels.OperandsDW)
}

// low is a product of operands that are rounded first.
func low(product func(c *kernels.Call), operands int) func(c *kernels.Call) {
	return func(c *kernels.Call) {
		first, second := kernels.Precisions[c.Attr.I[1]].Grains(operands)
		of := *c
		of.In = append([]*tensor.Tensor{rounded(c.In[0], first), rounded(c.In[1], second)}, c.In[2:]...)
		product(&of)
	}
}

// rounded is a matrix, of all rows of a tensor, in blocks that share a scale.
func rounded(t *tensor.Tensor, g kernels.Grain) *tensor.Tensor {
	v, out := load(t), tensor.Make(t.DType, t.Shape...)
	width := t.Shape[len(t.Shape)-1]
	if width == 0 {
		return out
	}
	rows := len(v) / width
	for r := 0; r < rows; r += g.Rows {
		for c := 0; c < width; c += g.Columns {
			block := func(f func(i int)) {
				for i := r; i < min(r+g.Rows, rows); i++ {
					for j := c; j < min(c+g.Columns, width); j++ {
						f(i*width + j)
					}
				}
			}
			most := 0.0
			block(func(i int) {
				if a := math.Abs(v[i]); a > most || a != a {
					most = a
				}
				if math.IsInf(v[i], 0) || most != most {
					most = math.NaN()
				}
			})
			by, back := g.Factor(float32(most))
			block(func(i int) { v[i] = float64(float32(nearest(g.Number, float32(v[i])*by)) * back) })
		}
	}
	store(out, v)
	return out
}

// nearest is the number of a format that is nearest to x, of two the even one.
func nearest(n kernels.Number, x float32) float32 {
	a := math.Abs(float64(x))
	if a != a {
		return x
	}
	step := math.Ldexp(1, n.Least-n.Mantissa)
	if a >= math.Ldexp(1, n.Least) {
		_, e := math.Frexp(a)
		step = math.Ldexp(1, e-1-n.Mantissa)
	}
	a = min(math.RoundToEven(a/step)*step, float64(n.Most))
	return float32(math.Copysign(a, float64(x)))
}
