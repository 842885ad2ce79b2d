//go:build cuda

package cuda

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Operations on rows: norms, gradients of vectors that all rows share, rotary embedding, rows by index.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.RMSNorm: func(x *issue) {
		x.norm("rmsnorm", nil, x.in(0), x.in(1), nil, nil, nil, nil, x.out(1))
	},
	kernels.RMSNormDX: func(x *issue) {
		x.norm("rmsnorm_dx", x.in(0), x.in(1), x.in(2), nil, nil, x.in(3), nil, nil)
	},
	kernels.LayerNorm: func(x *issue) {
		x.norm("layernorm", nil, x.in(0), x.in(1), x.in(2), nil, nil, x.out(1), x.out(2))
	},
	kernels.LayerNormDX: func(x *issue) {
		x.norm("layernorm_dx", x.in(0), x.in(1), x.in(2), nil, x.in(3), x.in(4), nil, nil)
	},
	kernels.ColSum:      func(x *issue) { x.columns("col_sum", nil, nil, nil) },
	kernels.MulColsDW:   func(x *issue) { x.columns("mul_cols_dw", x.in(1), nil, nil) },
	kernels.RMSNormDW:   func(x *issue) { x.columns("rmsnorm_dw", x.in(1), nil, x.in(2)) },
	kernels.LayerNormDW: func(x *issue) { x.columns("layernorm_dw", x.in(1), x.in(2), x.in(3)) },
	kernels.GateRowsBwd: func(x *issue) {
		dy := x.in(0)
		x.launch(typed("gate_rows_bwd", dy), rowwise(dy.Rows(), lastDim(dy)), dy, x.in(1), x.in(2), x.out(0),
			x.out(1), lastDim(dy))
	},
	kernels.Rope: func(x *issue) {
		a, r := x.in(0), lastDim(x.in(1))
		t, h, d := a.Shape[0], a.Shape[1], a.Shape[2]
		x.turns(typed("rope", a), eachEight(t*h*(d-r)), turns{x: a, cos: x.in(1), sin: x.in(2), y: x.out(0),
			t: t, h: h, d: d, r: r, way: x.c.Attr.I[0], pairs: x.c.Attr.I[1]})
	},
	kernels.RopeTable: func(x *issue) { x.angles(nil, 0) },
	kernels.RopeAxes:  func(x *issue) { x.angles(x.in(2), x.in(0).Shape[1]) },
	kernels.Turn: func(x *issue) {
		a, r := x.in(0), x.in(1).Len()
		t, h, d := a.Shape[0], a.Shape[1], a.Shape[2]
		x.turns(typed("turn", a), each(t*h*r), turns{x: a, angle: x.in(1), mark: x.in(2), y: x.out(0),
			t: t, h: h, d: d, r: r, way: x.c.Attr.I[0]})
	},
	kernels.TurnDW: func(x *issue) {
		dy, r := x.in(0), x.out(0).Len()
		t := dy.Shape[0]
		n := parts(t, chunk)
		part := x.work(n*r, 4)
		g := rowwise(n, r)
		x.turns(typed("turn_dw", dy), g, turns{x: x.in(1), dy: dy, mark: x.in(2), part: part, t: t,
			h: dy.Shape[1], d: dy.Shape[2], r: r})
		x.join(part, n, r)
	},
	kernels.Take: func(x *issue) {
		a := x.in(0)
		x.gather(typed("take", a), a, x.in(1), 0)
	},
	kernels.Embed: func(x *issue) { x.gather(typed("take", x.in(1)), x.in(1), x.in(0), x.c.Attr.I[0]) },
	kernels.TakeBwd: func(x *issue) {
		x.clear(x.out(0), 0)
		x.scatter("take_bwd", 0, false)
	},
	kernels.EmbedDW: func(x *issue) {
		if !x.accumulates(0) {
			x.clear(x.out(0), 0)
		}
		x.scatter("embed_dw", x.c.Attr.I[1], true)
	},
	kernels.CutSequences: func(x *issue) {
		from := x.c.Attr.I[0]
		x.launch("cut_sequences", grid{x: 1, threads: 32}, x.in(0), x.in(1), x.out(0), x.out(1),
			x.in(0).Len()-1, from, from+x.c.Attr.I[1])
	},
})

// norm launches a kernel of rows; its fields are those of the struct Norm.
//
//lfvet:params the operands of one operation, by the names of its contract
func (x *issue) norm(name string, dy, a, w, b, mean, rstd, meanOut, rstdOut *tensor.Tensor) {
	x.launch(typed(name, a), rowwise(a.Rows(), parts(lastDim(a), 8)), dy, a, w, b, mean, rstd, x.out(0), meanOut,
		rstdOut, lastDim(a), x.c.Attr.F[0], x.c.Attr.F[1])
}

const chunk = 64 // rows whose sums are one number of the first pass, as rows.cu has it

// columns sums over rows in two passes.
func (x *issue) columns(name string, a, mean, rstd *tensor.Tensor) {
	dy := x.in(0)
	rows, d := dy.Rows(), lastDim(dy)
	n := parts(rows, chunk)
	part := x.work(n*d, 4)
	g := rowwise(n, d)
	if g.y = parts(d, g.threads); d > 0 {
		x.launch(typed(name, dy), g, dy, a, mean, rstd, part, nil, rows, d, false)
	}
	x.join(part, n, d)
}

// join adds n rows of partial sums up in order.
func (x *issue) join(part uint64, n, d int) {
	x.launch("columns", each(d), nil, nil, nil, nil, part, x.out(0), n, d, x.accumulates(0))
}

// turns are the fields of the struct Turns.
type turns struct {
	x, dy, angle, cos, sin, mark, pos, axis, y, cosOut, sinOut *tensor.Tensor
	part                                                       uint64
	t, h, d, r, way, pairs, axes                               int
	f                                                          float64
}

func (x *issue) turns(name string, g grid, a turns) {
	x.launch(name, g, a.x, a.dy, a.angle, a.cos, a.sin, a.mark, a.pos, a.axis, a.y, a.cosOut, a.sinOut,
		a.part, a.t, a.h, a.d, a.r, a.way, a.pairs, a.axes, a.f)
}

func (x *issue) angles(axis *tensor.Tensor, axes int) {
	t, r := x.in(0).Shape[0], x.in(1).Len()
	x.turns("rope_table", each(t*r), turns{angle: x.in(1), pos: x.in(0), axis: axis, cosOut: x.out(0),
		sinOut: x.out(1), t: t, r: r, axes: axes, f: x.c.Attr.F[0]})
}

// gather copies the rows of a that idx less first names.
func (x *issue) gather(name string, a, idx *tensor.Tensor, first int) {
	y, d := x.out(0), tensor.Len(a.Shape[1:])
	x.launch(name, eachEight(y.Len()), a, nil, idx, nil, y, idx.Len(), a.Shape[0], d, 1, first, false)
}

// scatter adds rows to those that indices name, in order.
func (x *issue) scatter(name string, first int, add bool) {
	dy, idx, y := x.in(0), x.in(1), x.out(0)
	d := tensor.Len(y.Shape[1:])
	if n := idx.Len(); n > 0 && d > 0 {
		x.launch(typed(name, dy), rowwise(n, d), x.sorted(idx, y.Shape[0], first), dy, y, n, d, add)
	}
}
