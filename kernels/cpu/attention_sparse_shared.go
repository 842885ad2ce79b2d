package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Sparse attention whose heads share a key, as those of a latent key do: the rows that a query lists are
// gathered a panel at a time, and heads times rows are products of tiles.

const (
	// sharedPanel is the rows that are gathered at a time: a multiple of every level's tile whose keys and
	// values stay in the second-level cache.
	sharedPanel = 120
	// sharedKept is the numbers that queries of one round of the backward pass keep at most.
	sharedKept = 1 << 24
)

// shares reports whether enough heads share a key for products of tiles to pay.
func (k *isa) shares(heads, keyHeads int) bool { return keyHeads > 0 && 4*heads/keyHeads >= k.nr }

// panelWidth is the row length of gathered rows: whole columns of tiles, and never a power of two, which
// would put all rows into the same places of the cache.
func (k *isa) panelWidth(n int) int { return roundUp(n, max(16, k.nr)) + 16 }

// tall is the rows that scores of so many heads have: whole tiles, as left operand and where they are turned.
func (k *isa) tall(heads int) int { return max(roundUp(heads, 16), roundUp(heads, k.mr)) }

// gather copies rows of one head to dst, ld apart.
func (w *worker) gather(dst []float32, ld int, r rowsOf, rows []int32) {
	for i, j := range rows {
		if row := dst[i*ld:][:r.width]; r.v.d == tensor.F32 {
			copy(row, r.v.f[int(j)*r.ld:])
		} else {
			w.k.read(row, r.v, int(j)*r.ld)
		}
	}
}

// sharedHeads are the heads of one query that share a key head, as operands of products.
type sharedHeads struct {
	n, tall int     // heads, and the rows of scores: whole tiles
	columns columns // sums run over the width
	rows    rowsOf
}

// sharedHeads packs the queries of the heads that share the keys of group g, for one position a.
func (w *worker) sharedHeads(t *tensor.Tensor, a, g, heads int) sharedHeads {
	h, d := t.Shape[1], t.Shape[2]
	r := rowsOf{viewOf(t).from((a*h + g*heads) * d), d, d}
	return sharedHeads{heads, w.k.tall(heads), w.packColumns(r, heads), r}
}

// headScores sets s[head][row] to the products of heads with n gathered rows.
func (w *worker) headScores(s []float32, ld int, x sharedHeads, rows []float32, rowLen, n int) {
	m, wide := w.arena.mark(), roundUp(x.n, max(16, w.k.nr))
	t := w.arena.f32(roundUp(n, 16) * wide)
	w.product(t, wide, n, roundUp(x.n, w.k.nr), x.rows.width,
		operand{v: rows, row: rowLen, step: 1, next: w.k.mr * rowLen}, x.columns, false)
	out := w.arena.f32(wide * 16)
	for i := 0; i < n; i += 16 {
		w.k.transpose(out, 16, t[i*wide:], wide, wide/16)
		for j := range x.n {
			copy(s[j*ld+i:j*ld+min(i+16, n)], out[j*16:])
		}
	}
	w.arena.release(m)
}

// headSum adds the gathered rows, each times its number, to the rows of heads in acc.
func (w *worker) headSum(acc []float32, accLen int, s []float32, ld, heads int, rows []float32, rowLen, width, n int) {
	w.product(acc, accLen, roundUp(heads, w.k.mr), roundUp(width, w.k.nr), n,
		operand{v: s, row: ld, step: 1, next: w.k.mr * ld},
		columns{v: rows, step: rowLen, next: w.k.nr, width: width, rows: n}, true)
}

// listedScores are the products of the heads x of a query with all rows that it lists, ld apart, of which
// the rows up to x.tall are 0.
func (w *worker) listedScores(x sharedHeads, keys rowsOf, rows []int32) (s []float32, ld int) {
	ld = roundUp(len(rows), 16) + 16
	s = w.arena.f32(x.tall * ld)
	clear(s[x.n*ld:])
	m, rowLen := w.arena.mark(), w.k.panelWidth(keys.width)
	panel := w.arena.zero(sharedPanel * rowLen)
	for at := 0; at < len(rows); at += sharedPanel {
		some := rows[at:min(at+sharedPanel, len(rows))]
		w.gather(panel, rowLen, keys, some)
		w.headScores(s[at:], ld, x, panel, rowLen, len(some))
	}
	w.arena.release(m)
	return s, ld
}

// attentionShared is attention_sparse by products.
func attentionShared(b *Backend, c *kernels.Call) {
	q, k, v := c.In[0], c.In[1], c.In[2]
	t, g, group := q.Shape[0], k.Shape[1], q.Shape[1]/k.Shape[1]
	n := c.In[3].Shape[1]
	b.shareWork(t*g, t*q.Shape[1]*n*(q.Shape[2]+v.Shape[2]), func(w *worker, i int) {
		w.attendShared(c, i/g, i%g, group, listed(c.In[3].I32(), n, i/g))
	})
}

// attendShared computes one query position for all heads of a key group. The listed keys and values
// are gathered in panels, and each panel serves all of these heads.
func (w *worker) attendShared(c *kernels.Call, a, g, group int, rows []int32) {
	q, v, o, lse := c.In[0], headOf(c.In[2], g), viewOf(c.Out[0]), c.Out[1].F32()
	h, e := q.Shape[1], v.width
	x := w.sharedHeads(q, a, g, group)
	s, ld := w.listedScores(x, headOf(c.In[1], g), rows)
	over := w.arena.f32(group)
	for j := range group {
		p := s[j*ld:][:len(rows)]
		most, sum := w.k.soft(p, p, float32(c.Attr.F[0])*log2e, float32(math.Inf(-1)))
		at := a*h + g*group + j
		if over[j], lse[at] = 1/sum, float32((float64(most)+log2(sum))*math.Ln2); len(rows) == 0 {
			over[j], lse[at] = 0, float32(math.Inf(-1))
		}
	}
	rowLen := w.k.panelWidth(e)
	acc, panel := w.arena.zero(x.tall*rowLen), w.arena.zero(sharedPanel*rowLen)
	for at := 0; at < len(rows); at += sharedPanel {
		some := rows[at:min(at+sharedPanel, len(rows))]
		w.gather(panel, rowLen, v, some)
		w.headSum(acc, rowLen, s[at:], ld, group, panel, rowLen, e, len(some))
	}
	for j := range group {
		w.k.scale(acc[j*rowLen:][:e], acc[j*rowLen:][:e], over[j])
		w.k.write(o, (a*h+g*group+j)*e, acc[j*rowLen:][:e])
	}
}

// sharedGrad is what the tasks of one backward pass share.
type sharedGrad struct {
	c         *kernels.Call
	group, ld int // heads of a key head, and the row length of what is kept
	p, ds     []float32
	rows      [][]int32 // of each query of the round
	dk, dv    []float32
}

// kept is what a round keeps of its query i and key head g: probabilities and the gradients of scores.
func (x *sharedGrad) kept(w *worker, i, g int) (p, ds []float32) {
	size := w.k.tall(x.group) * x.ld
	at := (i*x.c.In[2].Shape[1] + g) * size
	return x.p[at:][:size], x.ds[at:][:size]
}

// attentionSharedBwd takes some queries at a time: first the gradients of each query, then those of keys and
// values, in ranges, by these queries in their order. How keys are cut changes no sum.
func attentionSharedBwd(b *Backend, c *kernels.Call) {
	q, k, v, n := c.In[1], c.In[2], c.In[3], c.In[6].Shape[1]
	t, h, g, group := q.Shape[0], q.Shape[1], k.Shape[1], q.Shape[1]/k.Shape[1]
	x := &sharedGrad{c: c, group: group, ld: roundUp(n, 16) + 16, dk: b.sums(c.Out[1]), dv: b.sums(c.Out[2])}
	each := g * b.k.tall(group) * x.ld
	step := max(1, min(64, t, sharedKept/max(1, each)))
	x.p, x.ds, x.rows = b.shared.f32(step*each), b.shared.f32(step*each), make([][]int32, step)
	for a0 := 0; a0 < t; a0 += step {
		now := min(step, t-a0)
		lo, hi := k.Shape[0], 0
		for i := range now {
			x.rows[i] = listed(c.In[6].I32(), n, a0+i)
			for _, j := range x.rows[i] {
				lo, hi = min(lo, int(j)), max(hi, int(j)+1)
			}
		}
		b.shareWork(now*g, now*h*n*(2*q.Shape[2]+v.Shape[2]), func(w *worker, i int) {
			w.sharedQuery(x, a0, i/g, i%g)
		})
		size := max(64, ceilDiv(hi-lo, 4*len(b.team.workers)))
		cuts := max(0, ceilDiv(hi-lo, size))
		b.shareWork(cuts*g, now*h*n*(q.Shape[2]+v.Shape[2]), func(w *worker, i int) {
			from := lo + i/g*size
			for at := range now {
				w.sharedKeys(x, a0, at, i%g, from, min(from+size, hi))
			}
		})
	}
	b.storeSums(c.Out[1], x.dk)
	b.storeSums(c.Out[2], x.dv)
}

// sums are sums in float32 for the elements of t, all 0: the tensor's own storage, or scratch.
func (b *Backend) sums(t *tensor.Tensor) []float32 {
	if t.DType == tensor.F32 {
		clear(t.F32())
		return t.F32()
	}
	return b.shared.zero(t.Len())
}

// storeSums rounds sums that are not the tensor's.
func (b *Backend) storeSums(t *tensor.Tensor, s []float32) {
	if t.DType != tensor.F32 {
		b.rows(t.Shape[0], tensor.Len(t.Shape[1:]), func(w *worker, from, to int) {
			n := tensor.Len(t.Shape[1:])
			w.k.write(viewOf(t), from*n, s[from*n:to*n])
		})
	}
}

// sharedQuery computes the gradient of query a0+i and keeps what keys and values need of it.
func (w *worker) sharedQuery(x *sharedGrad, a0, i, g int) {
	c, a, rows := x.c, a0+i, x.rows[i]
	q, v := c.In[1], headOf(c.In[3], g)
	h, d, scale := q.Shape[1], q.Shape[2], float32(c.Attr.F[0])
	qs, dos := w.sharedHeads(q, a, g, x.group), w.sharedHeads(c.In[0], a, g, x.group)
	delta, o := w.arena.f32(x.group), rowsOf{viewOf(c.In[4]).from((a*h + g*x.group) * v.width), v.width, v.width}
	for j := range x.group {
		m := w.arena.mark()
		delta[j] = w.k.dot(w.in(dos.rows.v, j*v.width, v.width), w.in(o.v, j*v.width, v.width))
		w.arena.release(m)
	}
	p, ds := x.kept(w, i, g)
	for j := x.group; j < qs.tall; j++ {
		clear(ds[j*x.ld:][:len(rows)])
	}
	keyLen, valueLen := w.k.panelWidth(d), w.k.panelWidth(v.width)
	keys, values := w.arena.zero(sharedPanel*keyLen), w.arena.zero(sharedPanel*valueLen)
	dq := w.arena.zero(qs.tall * keyLen)
	for at := 0; at < len(rows); at += sharedPanel {
		some := rows[at:min(at+sharedPanel, len(rows))]
		w.gather(values, valueLen, v, some)
		w.headScores(ds[at:], x.ld, dos, values, valueLen, len(some))
		w.gather(keys, keyLen, headOf(c.In[2], g), some)
		w.headScores(p[at:], x.ld, qs, keys, keyLen, len(some))
		for j := range x.group {
			from := j*x.ld + at
			pj, dj := p[from:from+len(some)], ds[from:from+len(some)]
			lse := c.In[5].F32()[a*h+g*x.group+j]
			w.k.softGrad(pj, dj, pj, dj, scale*log2e, lse*log2e, delta[j], scale)
		}
		w.headSum(dq, keyLen, ds[at:], x.ld, x.group, keys, keyLen, d, len(some))
	}
	for j := range x.group {
		w.k.write(viewOf(c.Out[0]), (a*h+g*x.group+j)*d, dq[j*keyLen:][:d])
	}
}

// sharedKeys adds what query a0+i gives to the gradients of keys and values [lo, hi).
func (w *worker) sharedKeys(x *sharedGrad, a0, i, g, lo, hi int) {
	rows := x.rows[i]
	p, ds := x.kept(w, i, g)
	h := x.c.In[1].Shape[1]
	for at := 0; at < len(rows); {
		if int(rows[at]) < lo || int(rows[at]) >= hi {
			at++
			continue
		}
		end := at + 1
		for end < len(rows) && end-at < sharedPanel && int(rows[end]) >= lo && int(rows[end]) < hi {
			end++
		}
		for _, y := range []struct {
			sums, by []float32
			from, to *tensor.Tensor
		}{{x.dk, ds, x.c.In[1], x.c.Out[1]}, {x.dv, p, x.c.In[0], x.c.Out[2]}} {
			width := y.from.Shape[2]
			r := rowsOf{viewOf(y.from).from(((a0+i)*h + g*x.group) * width), width, width}
			w.scatterProducts(y.sums[g*width:], y.to.Shape[1]*width, y.by[at:], x, r, rows[at:end])
		}
		at = end
	}
}

// scatterProducts adds the products of columns of by, which has a row for each head, with the heads' rows r
// to the given rows of sums, ld apart.
func (w *worker) scatterProducts(sums []float32, ld int, by []float32, x *sharedGrad, r rowsOf, rows []int32) {
	defer w.arena.release(w.arena.mark())
	wide := roundUp(r.width, w.k.nr)
	t := w.arena.f32(sharedPanel * wide)
	w.product(t, wide, len(rows), wide, x.group, operand{v: by, row: 1, step: x.ld, next: w.k.mr},
		w.rowColumns(r, x.group, len(rows)), false)
	for j, row := range rows {
		y := sums[int(row)*ld:][:r.width]
		w.k.add(y, y, t[j*wide:][:r.width])
	}
}
