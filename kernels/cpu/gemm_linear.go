package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// rowMajor is a matrix whose rows are summed along; columnMajor one whose columns are.
func rowMajor(t *tensor.Tensor) matrix    { return matrix{v: viewOf(t), ld: lastDim(t)} }
func columnMajor(t *tensor.Tensor) matrix { return matrix{v: viewOf(t), ld: lastDim(t), trans: true} }

// linear is y = x·wᵀ + bias for x [t,k], w [n,k] and a bias [n] that may be absent.
func linear(b *Backend, c *kernels.Call) {
	c = passed(c)
	x, w, y := c.In[0], c.In[1], c.Out[0]
	n := w.Shape[0]
	r := result{v: viewOf(y), ld: n}
	if len(c.In) > 2 && c.In[2] != nil {
		r.bias = b.shared.f32(n)
		b.k.read(r.bias, viewOf(c.In[2]), 0)
	}
	if kernels.Parts(c) > 1 {
		b.linearSplitK(c, r.bias)
		return
	}
	b.productOf(c, r, rowMajor(x), rowMajor(w), x.Rows(), n, lastDim(x))
}

// linearDX is dx = dy·w. The weights are read by columns, and so need no transposed copy.
func linearDX(b *Backend, c *kernels.Call) {
	c = passed(c)
	dy, w := c.In[0], c.In[1]
	k := w.Shape[1]
	b.productOf(c, result{v: viewOf(c.Out[0]), ld: k}, rowMajor(dy), columnMajor(w), dy.Rows(), k, w.Shape[0])
}

// linearDW is dw = dyᵀ·x in float32, added to what is there if the call accumulates.
func linearDW(b *Backend, c *kernels.Call) {
	dy, x := c.In[0], c.In[1]
	k := lastDim(x)
	r := result{v: viewOf(c.Out[0]), ld: k, acc: c.Attr.I[0] == kernels.Accumulate}
	b.gemm(r, columnMajor(dy), columnMajor(x), lastDim(dy), k, dy.Rows())
}

// stripe is the columns that one task sums over all rows, in row order.
const stripe = 256

// columnSums lets f add each row's elements [at, at+len(s)) to s, for every stripe of db.
func (b *Backend) columnSums(db []float32, rows int, acc bool, f func(w *worker, s []float32, row, at int)) {
	b.shareWork(ceilDiv(len(db), stripe), rows*len(db)*elementCost, func(w *worker, i int) {
		s := db[i*stripe : min((i+1)*stripe, len(db))]
		if !acc {
			clear(s)
		}
		for r := range rows {
			m := w.arena.mark()
			f(w, s, r, i*stripe)
			w.arena.release(m)
		}
	})
}

// colSum sums the rows, which is the gradient of a bias.
func colSum(b *Backend, c *kernels.Call) {
	dy, n := viewOf(c.In[0]), lastDim(c.In[0])
	b.columnSums(c.Out[0].F32(), c.In[0].Rows(), c.Attr.I[0] == kernels.Accumulate,
		func(w *worker, s []float32, r, at int) {
			w.k.axpy(s, w.in(dy, r*n+at, len(s)), 1)
		})
}

// rmsNorm is y = x·rstd·w per row, with rstd = 1/√(mean(x²) + ε), which is kept for the gradient.
// Rows in bfloat16 have kernels of their own that need no copy in float32.
func rmsNorm(b *Backend, c *kernels.Call) {
	x, y, rstd, d := viewOf(c.In[0]), viewOf(c.Out[0]), c.Out[1].F32(), lastDim(c.In[0])
	b.rows(len(rstd), d, func(w *worker, from, to int) {
		weight := w.weightOf(c, 1)
		for i := from; i < to; i++ {
			m := w.arena.mark()
			if h := w.k.half; h != nil && x.d == tensor.BF16 {
				row := x.h[i*d : (i+1)*d]
				rstd[i] = rootInverse(h.dot(row, row), d, c.Attr.F[0])
				h.norm(y.h[i*d:(i+1)*d], row, weight, rstd[i])
				continue
			}
			row, out := w.in(x, i*d, d), w.out(y, i*d, d)
			rstd[i] = rootInverse(w.k.dot(row, row), d, c.Attr.F[0])
			w.k.norm(out, row, weight, rstd[i])
			w.done(y, i*d, out)
			w.arena.release(m)
		}
	})
}

// weightOf is operand i of an RMS norm with the constant that is added to it.
func (w *worker) weightOf(c *kernels.Call, i int) []float32 {
	d := c.In[i].Len()
	x := w.in(viewOf(c.In[i]), 0, d)
	if c.Attr.F[1] == 0 {
		return x
	}
	y := w.arena.f32(d)
	w.k.shift(y, x, float32(c.Attr.F[1]))
	return y
}

// rootInverse is 1/sqrt(squares/n + eps).
func rootInverse(squares float32, n int, eps float64) float32 {
	return float32(1 / math.Sqrt(float64(squares)/float64(n)+eps))
}

// rmsNormDX is dx = r·(dy·w - x·r²·mean(dy·x·w)) per row.
func rmsNormDX(b *Backend, c *kernels.Call) {
	dy, x, dx, rstd, d := viewOf(c.In[0]), viewOf(c.In[1]), viewOf(c.Out[0]), c.In[3].F32(), lastDim(c.In[0])
	b.rows(len(rstd), d, func(w *worker, from, to int) {
		weight := w.weightOf(c, 2)
		for i := from; i < to; i++ {
			r := flushed(rstd[i])
			square := flushed(r * r)
			if h := w.k.half; h != nil && x.d == tensor.BF16 {
				g, row := dy.h[i*d:(i+1)*d], x.h[i*d:(i+1)*d]
				h.normDX(dx.h[i*d:(i+1)*d], g, row, weight, r, square*h.dot3(g, row, weight)/float32(d))
				continue
			}
			m := w.arena.mark()
			g, row, out := w.in(dy, i*d, d), w.in(x, i*d, d), w.out(dx, i*d, d)
			w.k.normDX(out, g, row, weight, r, square*w.k.dot3(g, row, weight)/float32(d))
			w.done(dx, i*d, out)
			w.arena.release(m)
		}
	})
}

// rmsNormDW is the sum of dy·x·rstd over the rows.
func rmsNormDW(b *Backend, c *kernels.Call) {
	dy, x, rstd, d := viewOf(c.In[0]), viewOf(c.In[1]), c.In[2].F32(), lastDim(c.In[0])
	b.columnSums(c.Out[0].F32(), len(rstd), c.Attr.I[0] == kernels.Accumulate, func(w *worker, s []float32, r, at int) {
		if h := w.k.half; h != nil && x.d == tensor.BF16 {
			h.mulAcc(s, dy.h[r*d+at:][:len(s)], x.h[r*d+at:][:len(s)], rstd[r])
			return
		}
		w.k.mulAcc(s, w.in(dy, r*d+at, len(s)), w.in(x, r*d+at, len(s)), rstd[r])
	})
}

// ropeTable computes cosine and sine of position times frequency, scaled by the factor that some
// long-context methods want. Angles are products in float32, whose sines are taken in float64.
func ropeTable(b *Backend, c *kernels.Call) {
	pos, inv, cos, sin := c.In[0].I32(), c.In[1].F32(), c.Out[0].F32(), c.Out[1].F32()
	r := len(inv)
	b.rows(len(pos), r*4, func(_ *worker, from, to int) {
		for i := from; i < to; i++ {
			for j, f := range inv {
				s, q := math.Sincos(float64(float32(pos[i]) * f))
				cos[i*r+j], sin[i*r+j] = float32(q*c.Attr.F[0]), float32(s*c.Attr.F[0])
			}
		}
	})
}

// rope turns the columns of each head, pair by pair, by the angles of the row's position.
func rope(b *Backend, c *kernels.Call) {
	width, f := c.In[0].Shape[1]*c.In[0].Shape[2], ropePiece(b, c)
	b.rows(c.In[0].Shape[0], width, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			m := w.arena.mark()
			f(w, i*width, width)
			w.arena.release(m)
		}
	})
}

// ropePiece rotates whole heads of one row.
func ropePiece(b *Backend, c *kernels.Call) piece {
	x, y, cos, sin := viewOf(c.In[0]), viewOf(c.Out[0]), c.In[1].F32(), c.In[2].F32()
	h, d, r := c.In[0].Shape[1], c.In[0].Shape[2], lastDim(c.In[1])
	rotate, half := b.k.rope, b.k.half != nil && x.d == tensor.BF16
	if c.Attr.I[1] == 1 {
		rotate, half = b.k.ropePairs, false
	}
	sign := float32(c.Attr.I[0])
	return func(w *worker, at, n int) {
		if n == 0 {
			return
		}
		i := at / (h * d)
		if half {
			in, out := x.h[at:at+n], y.h[at:at+n]
			if 2*r < d {
				copy(out, in)
			}
			w.k.half.rope(out, in, cos[i*r:(i+1)*r], sin[i*r:(i+1)*r], n/d, d, sign)
			return
		}
		in, out := w.in(x, at, n), w.out(y, at, n)
		if 2*r < d {
			copy(out, in)
		}
		rotate(out, in, cos[i*r:(i+1)*r], sin[i*r:(i+1)*r], n/d, d, sign)
		w.done(y, at, out)
	}
}

// embed copies the row of each token. Tokens outside of this member's part of the table give zeros,
// so that a sum over members is right.
func embed(b *Backend, c *kernels.Call) {
	ids, w, y := c.In[0].I32(), c.In[1], c.Out[0]
	n := w.Shape[1] * w.DType.Size()
	b.rows(len(ids), w.Shape[1], func(_ *worker, from, to int) {
		for i := from; i < to; i++ {
			dst := y.Bytes()[i*n : (i+1)*n]
			if r := int(ids[i]) - c.Attr.I[0]; r >= 0 && r < w.Shape[0] {
				copy(dst, w.Bytes()[r*n:])
			} else {
				clear(dst)
			}
		}
	})
}

// embedDW cuts the columns of the table, so that each task adds rows in their order.
func embedDW(b *Backend, c *kernels.Call) {
	dy, ids, dw := viewOf(c.In[0]), c.In[1].I32(), c.Out[0].F32()
	v, d := c.Out[0].Shape[0], c.Out[0].Shape[1]
	if c.Attr.I[0] != kernels.Accumulate {
		b.rows(v, d, func(_ *worker, from, to int) { clear(dw[from*d : to*d]) })
	}
	width := max(64, roundUp(ceilDiv(d, len(b.team.workers)), line))
	b.shareWork(ceilDiv(d, width), len(ids)*d*elementCost, func(w *worker, i int) {
		at, n := i*width, min(width, d-i*width)
		for j, id := range ids {
			r := int(id) - c.Attr.I[1]
			if r < 0 || r >= v {
				continue
			}
			m := w.arena.mark()
			w.k.axpy(dw[r*d+at:][:n], w.in(dy, j*d+at, n), 1)
			w.arena.release(m)
		}
	})
}

// flushed takes a subnormal number as zero, as the primitives do: Go's own arithmetic on one is slow.
func flushed(x float32) float32 {
	if math.Float32bits(x)&0x7f800000 == 0 {
		return 0
	}
	return x
}
