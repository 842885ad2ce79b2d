//go:build cuda

package cuda

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Optimizers beside AdamW, and those with moments in few bits.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.AdamWNarrow: func(x *issue) {
		x.step("adamw_narrow", further{m: x.out(1), v: x.out(2), q: x.out(3)})
	},
	kernels.AdamW8: func(x *issue) {
		s := x.out(3)
		a := x.updated(further{m: x.out(1), v: x.out(2), x: s, s: x.out(4), q: x.out(5)})
		if n := s.Len(); n > 0 {
			a.width = a.n / n
			x.further("adamw_8bit", rowwise(n, a.width), a)
		}
	},
	kernels.ScheduleFree: func(x *issue) {
		x.step("schedule_free", further{m: x.out(1), v: x.out(2), x: x.out(3), q: x.out(4)})
	},
	kernels.MuonMomentum:  func(x *issue) { x.step("muon_momentum", further{m: x.out(1)}) },
	kernels.MuonStep:      func(x *issue) { x.step("muon_step", further{q: x.out(1)}) },
	kernels.Orthogonalize: (*issue).orthogonalize,
	kernels.Adafactor:     (*issue).adafactor,
})

// further are the fields of the struct Further. Tensors may be addresses.
type further struct {
	g, hyper, clip, more, p, m, v, x, s, q any

	part                          uint64
	n                             int
	flag                          bool
	rows, width, matrices, chunks int
	first, group, whole, heads    int
	f0, f1                        float64
}

func (x *issue) further(name string, g grid, a further) {
	code := 0
	if q, ok := a.q.(*tensor.Tensor); ok && q != nil {
		code = int(q.DType)
	}
	x.launch(name, g, a.g, a.hyper, a.clip, a.more, a.p, orNil(a.m), orNil(a.v), orNil(a.x), orNil(a.s),
		orNil(a.q), a.part, a.n, code, a.flag, a.rows, a.width, a.matrices, a.chunks, a.first, a.group,
		a.whole, a.heads, a.f0, a.f1)
}

// updated fills in what all updates of a parameter have.
func (x *issue) updated(a further) further {
	a.g, a.hyper, a.clip, a.p = x.in(0), x.in(1), x.in(2), x.out(0)
	a.n, a.flag = x.in(0).Len(), x.c.Attr.I[0] == 1
	return a
}

// step launches an update whose threads have an element each.
func (x *issue) step(name string, a further) { x.further(name, each(x.in(0).Len()), x.updated(a)) }

// matrixShare are the elements of a matrix that a block sums, as optim_more.cu has it.
const matrixShare = 4096

// byMatrix is a grid of blocks for the n elements of each of some matrices.
func byMatrix(n, matrices int) grid { return grid{x: parts(n, matrixShare), y: matrices, threads: 256} }

// matricesOf are the last two axes of a tensor, and how many matrices it has.
func matricesOf(t *tensor.Tensor) (matrices, n, k int) {
	axes := len(t.Shape)
	return tensor.Len(t.Shape[:axes-2]), t.Shape[axes-2], t.Shape[axes-1]
}

func (x *issue) adafactor() {
	g := x.in(0)
	matrices, n, k := matricesOf(g)
	if g.Len() == 0 {
		return
	}
	a := further{g: g, hyper: x.in(2), clip: x.in(3), more: x.in(1), p: x.out(0), m: x.out(1), rows: n, width: k,
		matrices: matrices, f0: kernels.AdafactorLeast}
	if col := x.out(2); col != nil {
		a.v = col
		x.further("adafactor_rows", func() grid { r := rowwise(n, k); r.y = matrices; return r }(), a)
		a.chunks = parts(n, 64)
		a.part = x.work(matrices*a.chunks*k, 8)
		x.further("adafactor_columns", grid{x: parts(k, 256), y: a.chunks, z: matrices, threads: 256}, a)
		x.further("adafactor_joined", each(matrices*k), a)
		a.part = x.work(matrices, 8)
		x.further("adafactor_mean", rowwise(matrices, n), a)
	}
	a.n = n * k
	a.chunks = parts(a.n, matrixShare)
	sums := x.work(matrices*a.chunks, 8)
	a.s = sums
	x.further("adafactor_directions", byMatrix(a.n, matrices), a)
	a.part, a.s = sums, nil
	x.further("adafactor_lengths", byMatrix(a.n, matrices), a)
}

// orthogonalize is kernels.Orthogonalize: a matrix's products by whatever multiplies float32 here.
func (x *issue) orthogonalize() {
	in, out := x.in(0), x.out(0)
	matrices, n, k := matricesOf(in)
	if in.Len() == 0 {
		return
	}
	a := further{g: in, p: out, n: n * k, chunks: parts(n*k, matrixShare), f0: kernels.OrthogonalLeast}
	a.part = x.work(matrices*a.chunks, 8)
	x.further("squares_matrices", byMatrix(a.n, matrices), a)
	x.further("orthogonal_unit", byMatrix(a.n, matrices), a)
	rows, columns := min(n, k), max(n, k)
	gram, poly, next := x.work(rows*rows, 4), x.work(rows*rows, 4), x.work(n*k, 4)
	for i := range matrices {
		at, to := x.q.Addr(out)+uint64(4*i*n*k), next
		for range x.c.Attr.I[0] {
			x.orthogonalStep(at, to, gram, poly, rows, columns, n > k)
			at, to = to, at
		}
		if x.c.Attr.I[0]%2 == 1 && x.err == nil {
			x.err = x.d.Copy(x.q.Addr(out)+uint64(4*i*n*k), next, 4*n*k)
		}
	}
}

// orthogonalStep makes of a matrix at an address the next one of Newton and Schulz's iteration.
func (x *issue) orthogonalStep(at, to, gram, poly uint64, rows, columns int, turned bool) {
	row, column := columns, 1 // elements from row to row, and from column to column, of the wide matrix
	if turned {
		row, column = 1, rows
	}
	x.product(tensor.F32, product{a: at, b: at, y: gram, m: rows, n: rows, k: columns, aRow: row, aCol: column,
		bRow: row, bCol: column, yRow: rows})
	x.product(tensor.F32, product{a: gram, b: gram, y: poly, m: rows, n: rows, k: rows, aRow: rows, aCol: 1,
		bRow: rows, bCol: 1, yRow: rows})
	x.further("orthogonal_blend", each(rows*rows), further{g: gram, p: poly, n: rows * rows,
		f0: kernels.OrthogonalB, f1: kernels.OrthogonalC})
	x.further("orthogonal_blend", each(rows*columns), further{g: at, p: to, n: rows * columns, f0: kernels.OrthogonalA})
	if turned { // (poly·X)ᵀ, since poly is symmetric
		x.product(tensor.F32, product{a: at, b: poly, y: to, m: columns, n: rows, k: rows, aRow: rows, aCol: 1,
			bRow: rows, bCol: 1, yRow: rows, wide: true, add: true})
		return
	}
	x.product(tensor.F32, product{a: poly, b: at, y: to, m: rows, n: columns, k: rows, aRow: rows, aCol: 1,
		bRow: 1, bCol: columns, yRow: columns, wide: true, add: true})
}
