package ref

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.LowLinear], table[kernels.LowLinearDX], table[kernels.LowLinearDW] = low(linear,
		kernels.OperandsForward), low(linearDX, kernels.OperandsDX), low(linearDW, kernels.OperandsDW)
}

// low is a product of operands that are rounded first.
func low(product func(c *kernels.Call), operands int) func(c *kernels.Call) {
	return func(c *kernels.Call) {
		first, second := kernels.GrainsOf(c, operands, kernels.ChoiceOperand(c.Op))
		of := *c
		of.In = slices.Clone(c.In)
		if at := kernels.ChoiceOperand(c.Op); at < len(of.In) {
			of.In = of.In[:at]
		}
		if !kernels.Plainly(c, kernels.ChoiceOperand(c.Op)) {
			of.In[0], of.In[1] = rounded(c.In[0], first), rounded(c.In[1], second)
		}
		product(&of)
	}
}

func init() { table[kernels.Rounded] = roundMatrices }

// roundMatrices rounds each matrix of a call by itself.
func roundMatrices(c *kernels.Call) {
	out, width := make([]float64, c.Out[0].Len()), c.In[0].Shape[len(c.In[0].Shape)-1]
	x := load(c.In[0])
	if kernels.Plainly(c, kernels.ChoiceOperand(c.Op)) {
		store(c.Out[0], x)
		return
	}
	for _, rows := range kernels.Matrices(c) {
		part := tensor.Make(c.In[0].DType, rows[1]-rows[0], width)
		store(part, x[rows[0]*width:rows[1]*width])
		copy(out[rows[0]*width:], load(rounded(part, kernels.OperandOf(c).From(rows[0]))))
	}
	store(c.Out[0], out)
}

// rounded is a matrix, of all rows of a tensor, in blocks that share a scale.
func rounded(t *tensor.Tensor, g kernels.Grain) *tensor.Tensor { return roundedOf(t, g, nil) }

// roundedOf is a part of a matrix, from its beginning, whose greatest magnitude is all; nil is that of the part.
func roundedOf(t *tensor.Tensor, g kernels.Grain, most *float32) *tensor.Tensor {
	v, out := load(t), tensor.Make(t.DType, t.Shape...)
	width := t.Shape[len(t.Shape)-1]
	if width == 0 {
		return out
	}
	rows := len(v) / width
	wide := make([]float32, len(v))
	for i := range v {
		wide[i] = float32(v[i])
	}
	for r := 0; g.Mixed && r+kernels.HadamardRun <= rows; r += kernels.HadamardRun {
		kernels.Hadamard(wide[r*width:], width)
	}
	high, broad := g.Rows, g.Columns
	if g.Whole() {
		high, broad = rows, width
	}
	all := greatest(wide)
	if g.Kept {
		all = g.Most
	}
	if most != nil {
		all = *most
	}
	for r := 0; r < rows; r += high {
		for c := 0; c < width; c += broad {
			var block []int
			var of []float32
			for i := r; i < min(r+high, rows); i++ {
				for j := c; j < min(c+broad, width); j++ {
					block, of = append(block, i*width+j), append(of, wide[i*width+j])
				}
			}
			by, back := g.Factor(greatest(of), all)
			for _, i := range block {
				x := wide[i] * by
				if g.Chance {
					x = g.Number.StochasticRound(x, kernels.NoiseAt(g.Noise.Row(i/width), i%width))
				} else {
					x = g.Number.Nearest(x)
				}
				v[i] = float64(x * back)
			}
		}
	}
	store(out, v)
	return out
}

// greatest is the greatest magnitude of some numbers, NaN where one is not finite.
func greatest(v []float32) (most float32) {
	for _, x := range v {
		if a := float32(math.Abs(float64(x))); a > most || a != a {
			most = a
		}
		if math.IsInf(float64(x), 0) || most != most {
			return float32(math.NaN())
		}
	}
	return most
}
