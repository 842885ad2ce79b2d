package cpu

import (
	"slices"

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
		kernels.SwiGLUBwd: alone(swigluBwdPiece), kernels.Act: alone(actPiece), kernels.ActBwd: alone(actBwdPiece),
		kernels.Rope: func(b *Backend, c *kernels.Call) (piece, int) {
			return ropePiece(b, c), c.In[0].Shape[2]
		}}
}

// epilogue is what follows a product, part by part.
type epilogue struct {
	products []product // of the size of the whole result, which come first
	pieces   []piece
	unit     int // a part has a multiple of so many columns
	from     int // the column of the whole result that the product's first one is
}

// epilogueOf is that of a call, nil for none. A product that nobody reads but the sum behind it is added to
// where that sum goes.
func (b *Backend) epilogueOf(c *kernels.Call) *epilogue {
	if len(c.Then) == 0 {
		return nil
	}
	e := &epilogue{unit: 1}
	for i := 0; i < len(c.Then); i++ {
		t := c.Then[i]
		if kernels.TakesEpilogues(t.Op) {
			p := b.behind(t)
			if i+1 < len(c.Then) && addsTo(c, t, c.Then[i+1]) {
				p.r.v, p.r.acc = viewOf(c.Out[0]), true
				i++
			}
			e.products = append(e.products, p)
			continue
		}
		p, unit := pieces[t.Op](b, t)
		e.pieces = append(e.pieces, p)
		e.unit = max(e.unit, unit) // heads of one product are alike
	}
	return e
}

// behind is a product that is an epilogue.
func (b *Backend) behind(t *kernels.Call) product {
	x, w := t.In[0], t.In[1]
	p := product{result{v: viewOf(t.Out[0]), ld: w.Shape[0]}, rowMajor(x), rowMajor(w), x.Rows(), w.Shape[0],
		w.Shape[1]}
	if t.Op == kernels.LinearDX {
		p.r.ld, p.y, p.n, p.k = w.Shape[1], columnMajor(w), w.Shape[1], w.Shape[0]
	}
	return p
}

// addsTo tells whether a sum that follows a product t of c's epilogues adds nothing but t's result to c's, in
// the place of that.
func addsTo(c, t, sum *kernels.Call) bool {
	if sum.Op != kernels.Sum || len(sum.In) != 2 || !t.Passing || c.Out[0].DType != tensor.F32 ||
		sum.Out[0] != c.Out[0] {
		return false
	}
	return sum.In[0] == t.Out[0] && sum.In[1] == c.Out[0] || sum.In[1] == t.Out[0] && sum.In[0] == c.Out[0]
}

// inPlace are the epilogues that may write their first result where they read the product.
var inPlace = map[kernels.Op]bool{kernels.Sum: true, kernels.Mul: true, kernels.SwiGLU: true,
	kernels.SwiGLUBwd: true, kernels.Act: true, kernels.ActBwd: true}

// passed is c with its result where the only epilogue that reads it has its own, if nobody else reads it:
// there is one tensor less to be written.
func passed(c *kernels.Call) *kernels.Call {
	if !c.Passing {
		return c
	}
	y, reader := c.Out[0], -1
	for i, t := range c.Then {
		for _, x := range t.In {
			if x != nil && viewOf(x).at() == viewOf(y).at() {
				if reader >= 0 && reader != i || x != y {
					return c
				}
				reader = i
			}
		}
	}
	if reader < 0 || !inPlace[c.Then[reader].Op] || c.Then[reader].Out[0].DType != y.DType {
		return c
	}
	d, t := *c, *c.Then[reader]
	t.In = slices.Clone(t.In)
	for i, x := range t.In {
		if x == y {
			t.In[i] = t.Out[0]
		}
	}
	d.Out, d.Then = []*tensor.Tensor{t.Out[0]}, slices.Clone(c.Then)
	d.Then[reader] = &t
	return &d
}

// rows runs the epilogue on rows [i0, i1) and columns [j0, j1) of a product whose rows are ld elements.
func (e *epilogue) rows(w *worker, ld, i0, i1, j0, j1 int) {
	for _, p := range e.products {
		m := w.arena.mark()
		p.r.v, p.x = p.r.v.from(i0*ld+e.from+j0), p.x.from(i0)
		if p.m, p.n = i1-i0, j1-j0; p.y.trans {
			p.y.v = p.y.v.from(e.from + j0)
		} else {
			p.y = p.y.from(e.from + j0)
		}
		w.whole(p)
		w.arena.release(m)
	}
	for i := i0; len(e.pieces) > 0 && i < i1; i++ {
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
