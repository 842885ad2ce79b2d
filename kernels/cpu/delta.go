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

// deltaSolved is how many rows of a chunk's triangular system are solved one by one, before a product takes
// their part out of all later rows. A multiple of every level's tile.
const deltaSolved = 12

// mat is a matrix in scratch. Rows are whole tiles of a product's columns, zero beyond cols, so that
// primitives may run over whole rows; behind the last row there is room for the rest of a tile of rows.
type mat struct {
	v          []float32
	cols, step int
}

// mat is a matrix of zeros in the worker's arena. Rows are padded to whole vectors, and some are
// added, so that tiles may run past the end.
func (w *worker) mat(rows, cols int) mat {
	step := roundUp(cols, max(w.k.nr, line))
	return mat{w.arena.zero((rows + w.k.mr) * step), cols, step}
}

func (m mat) row(i int) []float32 { return m.v[i*m.step : (i+1)*m.step] }

// from is the matrix without its first n rows.
func (m mat) from(n int) mat { m.v = m.v[n*m.step:]; return m }

func (w *worker) right(b mat) columns {
	return columns{v: b.v, step: b.step, next: w.k.nr, width: b.step}
}

// mul is a·b, of which a has rows by k elements, added to c with acc.
func (w *worker) mul(c, a, b mat, rows, k int, acc bool) {
	x := operand{v: a.v, row: a.step, step: 1, next: w.k.mr * a.step}
	w.product(c.v, c.step, rows, b.step, k, x, w.right(b), acc)
}

// transMul is aᵀ·b, of which a has k by rows elements, added to c with acc.
func (w *worker) transMul(c, a, b mat, rows, k int, acc bool) {
	x := operand{v: a.v, row: 1, step: a.step, next: w.k.mr}
	w.product(c.v, c.step, rows, b.step, k, x, w.right(b), acc)
}

// dots is a·bᵀ, of which b has cols rows; beyond them c is 0. It is added to c with acc.
func (w *worker) dots(c, a, b mat, rows, cols int, acc bool) {
	defer w.arena.release(w.arena.mark())
	x := operand{v: a.v, row: a.step, step: 1, next: w.k.mr * a.step}
	y := w.packColumns(rowsOf{v: view{f: b.v}, ld: b.step, width: b.step}, cols)
	w.product(c.v, c.step, rows, roundUp(cols, w.k.nr), b.step, x, y, acc)
}

// deltaTask is a sequence and a key head.
type deltaTask struct{ from, to, key int }

// deltaRun is one value head along a sequence, a chunk at a time. With X = βV and Y = βγK a chunk solves
// (I + A)·U = X and (I + A)·W = Y; what it writes to the state S is V' = U - W·S. W and Y are kept negated.
type deltaRun struct {
	d, e, n     int
	q, k, v     mat // unit rows of a chunk
	pairs       mat // K·Kᵀ
	decay       mat // between two tokens, to the diagonal
	a, p        mat // -A below the diagonal, P to it
	inverse     mat // of I + A
	x, y        mat // y serves as scratch when W is made
	u, w        mat
	written     mat // V'
	s           mat // state before the chunk
	sum, beta   []float32
	since, left []float32 // decay from the chunk's start to a token, and from it to the chunk's end
}

// deltaRun makes the scratch for one head of the delta rule: chunks of deltaChunk rows and a state of d by e.
func (w *worker) deltaRun(d, e int) *deltaRun {
	c := deltaChunk
	row := func() []float32 { return make([]float32, c) }
	return &deltaRun{
		d: d, e: e, q: w.mat(c, d), k: w.mat(c, d), v: w.mat(c, e),
		pairs: w.mat(c, c), decay: w.mat(c, c), a: w.mat(c, c), p: w.mat(c, c), inverse: w.mat(c, c),
		x: w.mat(c, e), y: w.mat(c, d), u: w.mat(c, e), w: w.mat(c, d), written: w.mat(c, e), s: w.mat(d, e),
		sum: row(), beta: row(), since: row(), left: row(),
	}
}

// unitRow reads a row over its length, times scale.
func (w *worker) unitRow(dst []float32, x view, at, d int, eps, scale float64) {
	w.k.read(dst[:d], x, at)
	r := 1 / math.Sqrt(float64(w.k.dot(dst, dst))+eps)
	w.k.scale(dst, dst, float32(r*scale))
}

// deltaIn are the operands of a call.
type deltaIn struct {
	q, k, v    view
	g, beta    []float32
	h, n, d, e int
	eps        float64
}

// deltaOperands reads the operands of the delta rule that begin at input at: queries, keys, values,
// gates and write strengths.
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

// loadDelta reads rows [from, to) of a value head, and makes all of the chunk that does not depend on the state.
func (w *worker) loadDelta(r *deltaRun, in *deltaIn, from, to, head int) {
	r.n = to - from
	key, scale := head*in.h/in.n, 1/math.Sqrt(float64(in.d))
	sum := float32(0)
	for i := range r.n {
		row := from + i
		w.unitRow(r.q.row(i), in.q, (row*in.h+key)*in.d, in.d, in.eps, scale)
		w.unitRow(r.k.row(i), in.k, (row*in.h+key)*in.d, in.d, in.eps, 1)
		w.k.read(r.v.row(i)[:in.e], in.v, (row*in.n+head)*in.e)
		sum += in.g[row*in.n+head]
		r.sum[i], r.beta[i] = sum, in.beta[row*in.n+head]
	}
	w.k.exp(r.since[:r.n], r.sum[:r.n], 1, 0, 1)
	w.k.exp(r.left[:r.n], r.sum[:r.n], -1, sum, 1)
	w.dots(r.pairs, r.k, r.k, r.n, r.n, false)
	w.dots(r.p, r.q, r.k, r.n, r.n, false)
	for i := range r.n {
		decay, a, p := r.decay.row(i)[:i+1], r.a.row(i), r.p.row(i)
		w.k.exp(decay, r.sum[:i+1], -1, r.sum[i], 1)
		w.k.mul(p[:i+1], p[:i+1], decay)
		clear(p[i+1:])
		w.k.mul(a[:i], r.pairs.row(i)[:i], decay[:i])
		w.k.scale(a[:i], a[:i], -r.beta[i])
		clear(a[i:])
		w.k.scale(r.x.row(i), r.v.row(i), r.beta[i])
		w.k.scale(r.y.row(i), r.k.row(i), -r.beta[i]*r.since[i])
	}
	w.invert(r)
	w.mul(r.u, r.inverse, r.x, r.n, r.n, false)
	w.mul(r.w, r.inverse, r.y, r.n, r.n, false)
}

// invert solves (I + A)·X = I by rows: those of earlier blocks by a product, those of the same one by one.
func (w *worker) invert(r *deltaRun) {
	for i0 := 0; i0 < r.n; i0 += deltaSolved {
		rows := min(deltaSolved, r.n-i0)
		block := r.inverse.from(i0)
		if i0 == 0 {
			clear(block.v[:rows*block.step])
		} else {
			w.mul(block, r.a.from(i0), r.inverse, rows, i0, false)
		}
		for i := range rows {
			block.row(i)[i0+i]++
			for j := range i {
				w.k.axpy(block.row(i), block.row(j), r.a.row(i0 + i)[i0+j])
			}
		}
	}
}

// writes makes what the chunk writes to the state: U - W·S.
func (w *worker) writes(r *deltaRun) {
	copy(r.written.v, r.u.v[:r.n*r.u.step])
	w.mul(r.written, r.w, r.s, r.n, r.d, true)
}

// fade sets y to the rows of x times their factors.
func (w *worker) fade(y, x mat, f []float32) mat {
	for i := range f {
		w.k.scale(y.row(i), x.row(i), f[i])
	}
	return y
}

// advance takes the state over the chunk.
func (w *worker) advance(r *deltaRun) {
	w.k.scale(r.s.v, r.s.v, r.since[r.n-1])
	w.transMul(r.s, w.fade(r.y, r.k, r.left[:r.n]), r.written, r.d, r.n, true)
}

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

// deltaRule runs the gated delta rule chunk by chunk, which turns the recurrence over tokens into
// products of matrices (arXiv:2412.06464). A task has the heads of one key head of one sequence.
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
				// The output has two parts: what was written before this chunk, and what is written within it.
				w.mul(out, r.q, r.s, r.n, r.d, false)
				w.fade(out, out, r.since[:r.n])
				w.mul(out, r.p, r.written, r.n, r.n, true)
				for i := range r.n {
					w.k.write(o, ((from+i)*in.n+head)*in.e, out.row(i)[:in.e])
				}
				w.advance(r)
			}
		}
	})
}

// deltaGates computes the gates of each head: g = -exp(decay)·softplus(a + bias) and beta = sigmoid(b).
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
				// This form of softplus overflows neither for large nor for small arguments.
				z := float64(av[j] + tv[j])
				g[i*n+j] = float32(-math.Exp(float64(dv[j])) * (max(z, 0) + math.Log1p(math.Exp(-math.Abs(z)))))
				beta[i*n+j] = float32(1 / (1 + math.Exp(-float64(bv[j]))))
			}
		}
		w.arena.release(m)
	})
}

// deltaGatesBwd is the gradient of the gates to their two activations.
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
