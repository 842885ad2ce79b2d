package cpu

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// piece computes n elements, from element at on, of an elementwise operation.
type piece func(w *worker, at, n int)

// pieces are the operations that may run on parts of a product; unit is the elements that stay together.
var pieces map[kernels.Op]func(b *Backend, c *kernels.Call) (p piece, unit int)

func init() {
	alone := func(f func(*Backend, *kernels.Call) piece) func(*Backend, *kernels.Call) (piece, int) {
		return func(b *Backend, c *kernels.Call) (piece, int) { return f(b, c), 1 }
	}
	pieces = map[kernels.Op]func(*Backend, *kernels.Call) (piece, int){kernels.Sum: alone(sumPiece),
		kernels.Mul: alone(mulPiece), kernels.SwiGLU: alone(swigluPiece),
		kernels.SwiGLUBwd: alone(swigluBwdPiece), kernels.Act: alone(actPiece),
		kernels.ActBwd: alone(actBwdPiece),
		kernels.Rope: func(b *Backend, c *kernels.Call) (piece, int) {
			return ropePiece(b, c), c.In[0].Shape[2]
		}}
}

// epilogue is what follows a product, part by part.
type epilogue struct {
	pieces []piece
	unit   int // a part has a multiple of so many columns
	from   int // the column of the whole result that the product's first one is
}

// epilogueOf is that of a call, nil for none.
func (b *Backend) epilogueOf(c *kernels.Call) *epilogue {
	if len(c.Then) == 0 {
		return nil
	}
	e := &epilogue{unit: 1}
	for _, t := range c.Then {
		p, unit := pieces[t.Op](b, t)
		e.pieces = append(e.pieces, p)
		e.unit = max(e.unit, unit) // heads of one product are alike
	}
	return e
}

// rows runs the epilogue on rows [i0, i1) and columns [j0, j1) of a product whose rows are ld elements.
func (e *epilogue) rows(w *worker, ld, i0, i1, j0, j1 int) {
	for i := i0; i < i1; i++ {
		for _, p := range e.pieces {
			m := w.arena.mark()
			p(w, i*ld+e.from+j0, j1-j0)
			w.arena.release(m)
		}
	}
}

// product computes r = x·yᵀ and then the call's epilogues: on parts of the result where its cut allows, else
// one after the other.
func (b *Backend) productOf(c *kernels.Call, r result, x, y matrix, m, n, k int) {
	r.then = b.epilogueOf(c)
	if r.then != nil && !b.parts(&r, x, y, m, n, k) {
		r.then = nil
		defer func() {
			for _, t := range c.Then {
				table[t.Op](b, t)
			}
		}()
	}
	b.gemm(r, x, y, m, n, k)
}

// parts reports whether an epilogue can run on parts of a product: these hold whole units.
func (b *Backend) parts(r *result, x, y matrix, m, n, k int) bool {
	if m <= oneRow || n == 0 || k == 0 {
		return false
	}
	whole := func(cols, of int) bool { return cols >= of || cols%r.then.unit == 0 }
	if b.k.amx && x.v.d == tensor.BF16 && y.v.d == tensor.BF16 {
		// what is written past the caches is read again in one long pass
		if r.v.d != tensor.F32 && m*n*2 >= pastCaches {
			return false
		}
		_, cols := b.amxGrid(m, n, true)
		return whole(cols, n)
	}
	g := b.cut(*r, m, n, k)
	if !whole(g.nb, n) {
		return false
	}
	for _, rows := range []int{g.mb, m % g.mb} {
		for _, of := range []int{min(g.nb, n), n % g.nb} {
			if r.v.d != tensor.F32 || rows == 0 || of == 0 {
				continue // rounded by whole rows of the block
			}
			if _, cols := b.grid(min(rows, m), of, true); !whole(cols, of) {
				return false
			}
		}
	}
	return true
}
