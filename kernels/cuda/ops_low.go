//go:build cuda

package cuda

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Products of operands that are rounded to few bits: rounded by kernels of their own, and multiplied as
// numbers of the model's type, by cublasLt where that is.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.Rounded: func(x *issue) {
		at, a := x.c.Attr.I, x.in(0)
		r := x.roundingOf(a, at[0], at[2], x.in(2))
		r.to, r.off = x.q.Addr(x.out(0)), x.in(1)
		if r.off != nil {
			r.matrices = r.off.Len() - 1
			x.clear(x.out(0), 0) // rows of no group
		} else if n := len(a.Shape); n > 2 {
			r.each = a.Shape[n-2]
		}
		x.round(r)
	},
	kernels.LowLinear: func(x *issue) {
		a, w, y := x.in(0), x.in(1), x.out(0)
		n, k := w.Shape[0], w.Shape[1]
		of := x.roundBoth(kernels.OperandsForward)
		x.product(a.DType, product{a: of[0], b: of[1], bias: x.in(2), y: y, m: a.Rows(), n: n, k: k, aRow: k,
			aCol: 1, bRow: k, bCol: 1, yRow: n})
	},
	kernels.LowLinearDX: func(x *issue) {
		dy, w, dx := x.in(0), x.in(1), x.out(0)
		n, k := w.Shape[0], w.Shape[1]
		of := x.roundBoth(kernels.OperandsDX)
		x.product(dy.DType, product{a: of[0], b: of[1], y: dx, m: dy.Rows(), n: k, k: n, aRow: n, aCol: 1,
			bRow: 1, bCol: k, yRow: k})
	},
	kernels.LowLinearDW: func(x *issue) {
		dy, a, dw := x.in(0), x.in(1), x.out(0)
		n, k := lastDim(dy), lastDim(a)
		of := x.roundBoth(kernels.OperandsDW)
		x.product(dy.DType, product{a: of[0], b: of[1], y: dw, m: n, n: k, k: a.Rows(), aRow: 1, aCol: n,
			bRow: 1, bCol: k, yRow: k, wide: true, add: x.accumulates(0)})
	},
	kernels.EncodeRows: func(x *issue) {
		r := x.roundingOf(x.in(0), kernels.OperandsForward, 0, nil)
		r.to = x.q.Addr(x.out(0))
		x.greatest(&r)
		x.low(typed("encode_rows", r.of), &r, each(r.rows*r.width))
	},
	kernels.DecodeRows: func(x *issue) {
		y := x.out(0)
		r := x.roundingOf(x.in(0), kernels.OperandsForward, 0, nil)
		r.to, r.width = x.q.Addr(y), lastDim(y)
		r.bands = r.rows
		x.low(typed("decode_rows", y), &r, each(r.rows*r.width))
	},
	kernels.Greatest: func(x *issue) {
		e := x.out(0)
		x.clear(e, 0)
		for i := range x.c.In {
			r := rounding{of: x.in(i), all: x.q.Addr(e) + uint64(4*i)}
			r.rows, r.width = r.of.Rows(), lastDim(r.of)
			r.each = r.rows
			r.grain.Number = kernels.E4M3 // any: what is sought is the greatest
			x.greatest(&r)
		}
	},
	kernels.LargestTo: func(x *issue) {
		n := x.in(0).Len()
		x.launch("largest_to", each(n), x.in(0), x.out(0), x.in(1), n,
			x.c.Attr.I[0]&kernels.Accumulate == 0, kernels.ClipOverflow)
	},
	kernels.DelayedScales: func(x *issue) {
		n := x.out(0).Len()
		x.launch("delayed_scales", grid{x: 1, threads: 32}, x.in(0), x.out(0), x.in(1), (n-kernels.DelayedAt)/3,
			kernels.DelayedMost, kernels.DelayedNext, kernels.DelayedAt, kernels.ClipOverflow)
	},
})

// rounding is how a tensor is rounded, matrix by matrix; as the struct Low.
type rounding struct {
	of          *tensor.Tensor
	to          uint64
	most, all   uint64
	off, choice *tensor.Tensor
	draw        *tensor.Tensor // of kernels.Noise
	grain       kernels.Grain
	kept        int // the place of the greatest magnitude in choice, 0 where it is that of now

	rows, width, each, matrices, bands, site int
}

// Blocks that a warp has at once where all of a matrix shares a scale.
const wholeBlock = 128

// sides are the rows and columns of a block.
func (r *rounding) sides() (high, broad int) {
	if r.grain.Whole() {
		return wholeBlock, wholeBlock
	}
	return r.grain.Rows, r.grain.Columns
}

// roundingOf is how a call rounds operand 0 or 1 of a product, whose choice or delayed scales may be absent.
func (x *issue) roundingOf(t *tensor.Tensor, product, operand int, choice *tensor.Tensor) rounding {
	p := kernels.Precisions[x.c.Attr.I[1]]
	first, second := p.Grains(product)
	r := rounding{of: t, grain: first, choice: choice, rows: t.Rows(), width: lastDim(t), each: t.Rows()}
	if operand == 1 {
		r.grain = second
	}
	if r.grain.Chance {
		n, draw := kernels.NoiseOf(x.c, product)
		r.site, r.draw = int(n.Site), draw
	}
	if p.Delayed && choice != nil {
		r.kept = kernels.KeptAt(product)[operand]
	}
	return r
}

// roundBoth rounds the operands of a product.
func (x *issue) roundBoth(product int) (at [2]uint64) {
	for i := range at {
		t := x.in(i)
		r := x.roundingOf(t, product, i, x.in(kernels.ChoiceOperand(x.c.Op)))
		r.to = x.work(t.Len(), t.DType.Size())
		x.round(r)
		at[i] = r.to
	}
	return at
}

// round launches what rounds a tensor.
func (x *issue) round(r rounding) {
	if r.kept == 0 {
		x.greatest(&r)
	}
	x.low(typed("low_round", r.of), &r, x.warps(&r))
}

// warps is the grid of a warp for each row of blocks of a strip of columns.
func (x *issue) warps(r *rounding) grid {
	high, broad := r.sides()
	if r.off != nil {
		r.bands = r.rows/high + r.matrices // no fewer than there are
	} else if r.each > 0 {
		r.matrices = r.rows / r.each
		r.bands = r.matrices * parts(r.each, high)
	}
	const threads = 256
	return grid{x: parts(32*r.bands*parts(r.width, max(broad, 32)), threads), threads: threads}
}

// greatest launches what finds the greatest magnitudes of blocks, and of matrices where scales follow from those.
func (x *issue) greatest(r *rounding) {
	_, broad := r.sides()
	g := x.warps(r)
	if r.bands == 0 || r.width == 0 {
		return
	}
	r.most = x.work(r.bands*parts(r.width, broad), 4)
	x.low(typed("low_most", r.of), r, g)
	if !r.grain.Global() {
		return
	}
	if r.all == 0 {
		r.all = x.work(r.matrices, 4)
	}
	x.low("low_all", r, grid{x: r.matrices, threads: 256})
}

func (x *issue) low(name string, r *rounding, g grid) {
	if r.bands == 0 || r.width == 0 {
		return
	}
	high, broad := r.sides()
	n := r.grain.Number
	x.launch(name, g, r.of, r.to, r.most, r.all, orNil(r.off), orNil(r.choice), orNil(r.draw), r.rows, r.width,
		r.each, r.matrices, r.bands, high, broad, r.grain.Whole(), r.grain.Mixed, r.grain.Chance, int(r.grain.Scale), r.kept, n.Mantissa,
		n.Least, n.Top, r.site, float64(n.Most))
}
