package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

func init() {
	table[kernels.DeltaRule] = deltaRule
	table[kernels.DeltaRuleBwd] = deltaRuleBwd
	table[kernels.DeltaGates] = deltaGates
	table[kernels.DeltaGatesBwd] = deltaGatesBwd
}

// deltaChunk is how many tokens are computed at a time: within a chunk the rule is a triangular system and
// products of matrices, between chunks a state (arXiv:2406.06484, arXiv:2412.06464).
const deltaChunk = 64

// mat is a matrix in scratch. Rows are whole cache lines, zero beyond cols, so that primitives may run over
// whole rows.
type mat struct {
	v          []float32
	cols, step int
}

func (w *worker) mat(rows, cols int) mat {
	step := roundUp(cols, line)
	return mat{w.arena.zero(rows * step), cols, step}
}

func (m mat) row(i int) []float32 { return m.v[i*m.step : (i+1)*m.step] }

// addMul adds a·b, of which a has rows by k elements.
func (w *worker) addMul(c, a, b mat, rows, k int) {
	for i := range rows {
		for p := range k {
			if x := a.v[i*a.step+p]; x != 0 {
				w.k.axpy(c.row(i), b.row(p), x)
			}
		}
	}
}

// addTransMul adds aᵀ·b, of which a has k by rows elements.
func (w *worker) addTransMul(c, a, b mat, rows, k int) {
	for p := range k {
		for i := range rows {
			if x := a.v[p*a.step+i]; x != 0 {
				w.k.axpy(c.row(i), b.row(p), x)
			}
		}
	}
}

// dots is a·bᵀ, for columns up to the row's own with lower, and 0 beyond.
func (w *worker) dots(c, a, b mat, rows, cols int, lower bool) {
	for i := range rows {
		n := cols
		if lower {
			n = i + 1
		}
		for j := range n {
			c.v[i*c.step+j] = w.k.dot(a.row(i), b.row(j))
		}
	}
}

// deltaTask is a sequence and a key head.
type deltaTask struct{ from, to, key int }

// deltaRun is one value head along a sequence, a chunk at a time.
type deltaRun struct {
	d, e, n       int
	q, k, v       mat // unit rows of a chunk
	a, p          mat // A below the diagonal, P to it
	u, w, written mat // U, W and V' = U - W·S
	s             mat // state before the chunk
	sum, beta     []float32
	rq, rk        []float32
}

func (w *worker) deltaRun(d, e int) *deltaRun {
	c := deltaChunk
	return &deltaRun{
		d: d, e: e, q: w.mat(c, d), k: w.mat(c, d), v: w.mat(c, e), a: w.mat(c, c), p: w.mat(c, c),
		u: w.mat(c, e), w: w.mat(c, d), written: w.mat(c, e), s: w.mat(d, e),
		sum: make([]float32, c), beta: make([]float32, c), rq: make([]float32, c), rk: make([]float32, c),
	}
}

// unitRow reads a row over its length, times scale; it returns one over the length.
func (w *worker) unitRow(dst []float32, x view, at, d int, eps, scale float64) float32 {
	w.k.read(dst[:d], x, at)
	r := 1 / math.Sqrt(float64(w.k.dot(dst, dst))+eps)
	w.k.scale(dst, dst, float32(r*scale))
	return float32(r)
}

// deltaIn are the operands of a call.
type deltaIn struct {
	q, k, v    view
	g, beta    []float32
	h, n, d, e int
	eps        float64
}

func deltaOperands(c *kernels.Call, at int) deltaIn {
	q, v := c.In[at], c.In[at+2]
	return deltaIn{
		q:    viewOf(q),
		k:    viewOf(c.In[at+1]),
		v:    viewOf(v),
		g:    c.In[at+3].F32(),
		beta: c.In[at+4].F32(),
		h:    q.Shape[1],
		n:    v.Shape[1],
		d:    q.Shape[2],
		e:    v.Shape[2],
		eps:  c.Attr.F[0],
	}
}

// load reads rows [from, to) of a value head, and makes all of the chunk that does not depend on the state.
func (w *worker) loadDelta(r *deltaRun, in *deltaIn, from, to, head int) {
	r.n = to - from
	key, scale := head*in.h/in.n, 1/math.Sqrt(float64(in.d))
	sum := float32(0)
	for i := range r.n {
		row := from + i
		r.rq[i] = w.unitRow(r.q.row(i), in.q, (row*in.h+key)*in.d, in.d, in.eps, scale)
		r.rk[i] = w.unitRow(r.k.row(i), in.k, (row*in.h+key)*in.d, in.d, in.eps, 1)
		w.k.read(r.v.row(i)[:in.e], in.v, (row*in.n+head)*in.e)
		sum += in.g[row*in.n+head]
		r.sum[i], r.beta[i] = sum, in.beta[row*in.n+head]
	}
	w.dots(r.a, r.k, r.k, r.n, r.n, true)
	w.dots(r.p, r.q, r.k, r.n, r.n, true)
	for i := range r.n {
		for j := range i {
			f := decayOf(r.sum[i] - r.sum[j])
			r.a.v[i*r.a.step+j] *= r.beta[i] * f
			r.p.v[i*r.p.step+j] *= f
		}
		r.a.v[i*r.a.step+i] = 0
		w.k.scale(r.u.row(i), r.v.row(i), r.beta[i])
		w.k.scale(r.w.row(i), r.k.row(i), r.beta[i]*decayOf(r.sum[i]))
		for j := range i {
			x := -r.a.v[i*r.a.step+j]
			w.k.axpy(r.u.row(i), r.u.row(j), x)
			w.k.axpy(r.w.row(i), r.w.row(j), x)
		}
	}
}

// writes makes what the chunk writes to the state: U - W·S.
func (w *worker) writes(r *deltaRun) {
	for i := range r.n {
		copy(r.written.row(i), r.u.row(i))
		for p := range r.d {
			w.k.axpy(r.written.row(i), r.s.row(p), -r.w.v[i*r.w.step+p])
		}
	}
}

// advance takes the state over the chunk.
func (w *worker) advance(r *deltaRun) {
	last := r.sum[r.n-1]
	w.k.scale(r.s.v, r.s.v, decayOf(last))
	for i := range r.n {
		f := decayOf(last - r.sum[i])
		for p := range r.d {
			w.k.axpy(r.s.row(p), r.written.row(i), f*r.k.v[i*r.k.step+p])
		}
	}
}

// decayOf is e to the power of a sum of g.
func decayOf(x float32) float32 { return float32(math.Exp(float64(x))) }

// deltaTasks lists sequences by key heads.
func deltaTasks(cu []int32, h int) (out []deltaTask, rows int) {
	for s := range len(cu) - 1 {
		for key := range h {
			if cu[s] < cu[s+1] {
				out = append(out, deltaTask{int(cu[s]), int(cu[s+1]), key})
				rows += int(cu[s+1] - cu[s])
			}
		}
	}
	return
}

func deltaRule(b *Backend, c *kernels.Call) {
	in, cu, o := deltaOperands(c, 0), c.In[5].I32(), viewOf(c.Out[0])
	clearBeyond(c.Out[0], cu)
	tasks, rows := deltaTasks(cu, in.h)
	b.shareWork(len(tasks), rows*6*in.d*in.e, func(w *worker, i int) {
		t, r, out := tasks[i], w.deltaRun(in.d, in.e), w.mat(deltaChunk, in.e)
		for head := t.key * in.n / in.h; head < (t.key+1)*in.n/in.h; head++ {
			clear(r.s.v)
			for from := t.from; from < t.to; from += deltaChunk {
				w.loadDelta(r, &in, from, min(from+deltaChunk, t.to), head)
				w.writes(r)
				clear(out.v)
				w.addMul(out, r.q, r.s, r.n, r.d)
				for i := range r.n {
					w.k.scale(out.row(i), out.row(i), decayOf(r.sum[i]))
				}
				w.addMul(out, r.p, r.written, r.n, r.n)
				for i := range r.n {
					w.k.write(o, ((from+i)*in.n+head)*in.e, out.row(i)[:in.e])
				}
				w.advance(r)
			}
		}
	})
}

func deltaGates(b *Backend, c *kernels.Call) {
	a, x, decay, bias := viewOf(c.In[0]), viewOf(c.In[1]), viewOf(c.In[2]), viewOf(c.In[3])
	g, beta, n := c.Out[0].F32(), c.Out[1].F32(), c.In[2].Len()
	b.rows(c.In[0].Shape[0], 16*n, func(w *worker, from, to int) {
		m := w.arena.mark()
		av, bv, dv, tv := w.arena.f32(n), w.arena.f32(n), w.arena.f32(n), w.arena.f32(n)
		w.k.read(dv, decay, 0)
		w.k.read(tv, bias, 0)
		for i := from; i < to; i++ {
			w.k.read(av, a, i*n)
			w.k.read(bv, x, i*n)
			for j := range n {
				z := float64(av[j] + tv[j])
				g[i*n+j] = float32(
					-math.Exp(float64(dv[j])) * (max(z, 0) + math.Log1p(math.Exp(-math.Abs(z)))),
				)
				beta[i*n+j] = float32(1 / (1 + math.Exp(-float64(bv[j]))))
			}
		}
		w.arena.release(m)
	})
}

func deltaGatesBwd(b *Backend, c *kernels.Call) {
	dg, dbeta := c.In[0].F32(), c.In[1].F32()
	a, x, decay, bias := viewOf(c.In[2]), viewOf(c.In[3]), viewOf(c.In[4]), viewOf(c.In[5])
	da, db, n := viewOf(c.Out[0]), viewOf(c.Out[1]), c.In[4].Len()
	b.rows(c.In[2].Shape[0], 16*n, func(w *worker, from, to int) {
		m := w.arena.mark()
		av, bv, dv, tv := w.arena.f32(n), w.arena.f32(n), w.arena.f32(n), w.arena.f32(n)
		w.k.read(dv, decay, 0)
		w.k.read(tv, bias, 0)
		for i := from; i < to; i++ {
			w.k.read(av, a, i*n)
			w.k.read(bv, x, i*n)
			for j := range n {
				s := 1 / (1 + math.Exp(-float64(bv[j])))
				z := 1 / (1 + math.Exp(-float64(av[j]+tv[j])))
				av[j] = float32(-float64(dg[i*n+j]) * math.Exp(float64(dv[j])) * z)
				bv[j] = float32(float64(dbeta[i*n+j]) * s * (1 - s))
			}
			w.k.write(da, i*n, av)
			w.k.write(db, i*n, bv)
		}
		w.arena.release(m)
	})
}
