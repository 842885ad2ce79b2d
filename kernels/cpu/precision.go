package cpu

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

// low is a product of operands that are rounded first, in the unit that multiplies those of the model's type.
func low(product func(b *Backend, c *kernels.Call), operands int) func(b *Backend, c *kernels.Call) {
	return func(b *Backend, c *kernels.Call) {
		defer b.shared.release(b.shared.mark())
		first, second := kernels.Precisions[c.Attr.I[1]].Grains(operands)
		of := *c
		of.In = append([]*tensor.Tensor{b.rounded(c.In[0], first), b.rounded(c.In[1], second)}, c.In[2:]...)
		product(b, &of)
	}
}

// rounded is a copy of a tensor, taken as the matrix of all its rows, in blocks that share a scale.
func (b *Backend) rounded(t *tensor.Tensor, g kernels.Grain) *tensor.Tensor {
	width, rows := lastDim(t), t.Rows()
	out := b.copyOf(t)
	if t.Len() == 0 {
		return out
	}
	from, to := viewOf(t), viewOf(out)
	groups := ceilDiv(rows, g.Rows)
	each := max(1, 64/g.Rows) // groups of a task
	b.shareWork(ceilDiv(groups, each), rows*width*elementCost, func(w *worker, i int) {
		for at := i * each; at < min((i+1)*each, groups); at++ {
			m := w.arena.mark()
			w.round(from, to, at*g.Rows, min((at+1)*g.Rows, rows), width, g)
			w.arena.release(m)
		}
	})
	return out
}

// copyOf is room for a tensor of the same type and shape.
func (b *Backend) copyOf(t *tensor.Tensor) *tensor.Tensor {
	if t.DType == tensor.F32 {
		return tensor.Of(tensor.F32, b.shared.f32(t.Len()), t.Shape...)
	}
	return tensor.Of(t.DType, b.shared.u16(t.Len()), t.Shape...)
}

// round rounds rows [first, end), which share scales by columns of the grain.
func (w *worker) round(from, to view, first, end, width int, g kernels.Grain) {
	buf := w.arena.f32((end - first) * width)
	most := make([]uint32, ceilDiv(width, g.Columns))
	for r := range end - first {
		row := buf[r*width : (r+1)*width]
		w.k.read(row, from, (first+r)*width)
		if g.Columns == 1 {
			for j, v := range row {
				most[j] = max(most[j], math.Float32bits(v)&^(1<<31))
			}
			continue
		}
		for c := range most {
			m := most[c]
			for _, v := range row[c*g.Columns : min((c+1)*g.Columns, width)] {
				m = max(m, math.Float32bits(v)&^(1<<31))
			}
			most[c] = m
		}
	}
	by, back := w.arena.f32(len(most)), w.arena.f32(len(most))
	for c, m := range most {
		by[c], back[c] = g.Factor(math.Float32frombits(m))
	}
	q := newRounding(g.Number)
	for r := range end - first {
		row := buf[r*width : (r+1)*width]
		if g.Columns == 1 {
			for j, v := range row {
				row[j] = q.nearest(v*by[j]) * back[j]
			}
		} else {
			for c := range most {
				f, s := by[c], back[c]
				part := row[c*g.Columns : min((c+1)*g.Columns, width)]
				for j, v := range part {
					part[j] = q.nearest(v*f) * s
				}
			}
		}
		w.k.write(to, (first+r)*width, row)
	}
}

// rounding are the constants of a format.
type rounding struct {
	half, keep uint32  // of the bits of a float32 behind the mantissa: half of the last one kept, and the kept ones
	shift      int     // of the last one kept
	least      uint32  // bits of the least normal number
	magic      float32 // pushes what is behind the last bit of a subnormal number out of a float32
	most       uint32  // bits of the greatest number
}

func newRounding(n kernels.Number) rounding {
	shift := 23 - n.Mantissa
	return rounding{half: 1<<(shift-1) - 1, keep: ^uint32(1<<shift - 1), shift: shift,
		least: math.Float32bits(float32(math.Ldexp(1, n.Least))),
		magic: float32(math.Ldexp(1.5, 23+n.Least-n.Mantissa)), most: math.Float32bits(n.Most)}
}

// nearest is the number of the format that is nearest to x, of two the even one.
func (q *rounding) nearest(x float32) float32 {
	u := math.Float32bits(x)
	a := u &^ (1 << 31)
	if a < q.least {
		s := float32(math.Float32frombits(a)+q.magic) - q.magic
		return math.Float32frombits(math.Float32bits(s) | u&(1<<31))
	}
	if a > 0x7f800000 {
		return x
	}
	a = min((a+q.half+a>>q.shift&1)&q.keep, q.most)
	return math.Float32frombits(a | u&(1<<31))
}
