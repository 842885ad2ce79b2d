//go:build cuda

package cuda

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Rows that a vector of their sample or token modulates and gates, features of times, and losses of numbers.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.Modulate: func(x *issue) {
		m := x.mod(x.in(0), x.in(3), x.in(1))
		m.x, m.s, m.b, m.rstdOut, m.meanOut = x.in(0), x.in(1), x.in(2), x.out(1), x.out(2)
		m.kind, m.wide = x.c.Attr.I[0], floats(x.in(1), x.in(2))
		x.rowsOf("modulate", m)
	},
	kernels.ModulateDX: func(x *issue) {
		m := x.mod(x.in(0), x.in(3), x.in(2))
		m.dy, m.x, m.s, m.rstd, m.mean = x.in(0), x.in(1), x.in(2), x.in(4), x.in(5)
		m.wide = floats(x.in(2), nil)
		x.rowsOf("modulate_dx", m)
	},
	kernels.ModulateDW: (*issue).modulateDW,
	kernels.Gate: func(x *issue) {
		m := x.mod(x.in(0), x.in(2), x.in(1))
		m.x, m.s, m.b, m.wide = x.in(0), x.in(1), x.in(3), floats(x.in(1), nil)
		x.launch(typed("gate", x.in(0)), each(x.out(0).Len()), m.fields()...)
	},
	kernels.Sinusoids: func(x *issue) {
		m := mod{x: x.in(0), s: x.in(1), y: x.out(0), rows: x.in(0).Len(), d: x.in(1).Len(), kind: x.c.Attr.I[0],
			plus: x.c.Attr.F[0]}
		x.launch(typed("sinusoids", x.out(0)), each(m.rows*m.d), m.fields()...)
	},
	kernels.PointLoss: func(x *issue) {
		n := parts(x.in(0).Len(), 4096)
		part := x.work(max(1, n), 8)
		x.points("point_loss", grid{x: n, threads: 256}, nil, part)
		x.launch("point_total", single(256), nil, nil, nil, nil, nil, x.out(0), part, n, 0, 0, 0, 0, 0.0)
	},
	kernels.PointLossDX: func(x *issue) { x.points("point_loss_dx", each(x.out(0).Len()), x.in(4), 0) },
})

// mod are the fields of the struct Mod.
type mod struct {
	x, dy, s, b, at, rstd, mean, y, y2, rstdOut, meanOut *tensor.Tensor
	part                                                 uint64
	rows, d, run, groups, kind, wide, chunks             int
	eps, plus                                            float64
}

func (m mod) fields() []any {
	return []any{m.x, m.dy, m.s, m.b, m.at, m.rstd, m.mean, m.y, m.y2, m.rstdOut, m.meanOut, m.part, m.rows, m.d,
		m.run, m.groups, m.kind, m.wide, m.chunks, m.eps, m.plus}
}

// mod describes rows of a by a table of what modulates them, to the first output.
func (x *issue) mod(a, at, table *tensor.Tensor) mod {
	m := mod{at: at, y: x.out(0), rows: a.Rows(), d: lastDim(a), groups: table.Shape[0], run: 1,
		eps: x.c.Attr.F[0], plus: x.c.Attr.F[1]}
	if at.Len() > 0 {
		m.run = max(1, m.rows/at.Len())
	}
	return m
}

// rowsOf launches a block for each row.
func (x *issue) rowsOf(name string, m mod) {
	if m.d > 0 {
		x.launch(typed(name, x.in(0)), rowwise(m.rows, m.d), m.fields()...)
	}
}

// floats has bit 1 where a, and bit 2 where b, is float32.
func floats(a, b *tensor.Tensor) (bits int) {
	if a != nil && a.DType == tensor.F32 {
		bits |= 1
	}
	if b != nil && b.DType == tensor.F32 {
		bits |= 2
	}
	return bits
}

const dwChunks = 64 // of rows whose sums modulate_dw takes by themselves

func (x *issue) modulateDW() {
	ds := x.out(0)
	m := x.mod(x.in(0), x.in(2), ds)
	m.dy, m.x, m.rstd, m.mean, m.y2, m.wide = x.in(0), x.in(1), x.in(3), x.in(4), x.out(1), floats(ds, x.out(1))
	if ds.Len() == 0 {
		return
	}
	m.chunks = max(1, min(dwChunks, parts(m.rows, chunk)))
	m.part = x.work(m.chunks*2*ds.Len(), 4)
	g := rowwise(m.chunks, m.d)
	g.y = parts(m.d, g.threads)
	x.launch(typed("modulate_dw", x.in(0)), g, m.fields()...)
	x.launch(typed("modulate_join", x.in(0)), each(2*ds.Len()), m.fields()...)
}

// points launches a kernel of a loss of numbers.
func (x *issue) points(name string, g grid, seed *tensor.Tensor, part uint64) {
	a, weight := x.in(0), x.in(2)
	run := 1
	if weight.Len() > 0 {
		run = max(1, a.Rows()/weight.Len())
	}
	x.launch(typed(name, a), g, a, x.in(1), x.in(3), weight, seed, x.out(0), part, a.Len(), max(1, lastDim(a)), run,
		x.c.Attr.I[0], floats(x.in(1), x.in(3)), x.c.Attr.F[0])
}
