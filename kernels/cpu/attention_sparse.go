package cpu

import (
	"cmp"
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Attention to the keys that each query lists. Keys of neighbouring queries differ, so nothing is packed:
// every query reads the rows that it needs. Where many heads share a key, see attention_sparse_shared.go.

func init() {
	table[kernels.VisibleKeys] = visibleKeys
	table[kernels.AttentionSparse], table[kernels.AttentionSparseBwd] = attentionSparse, attentionSparseBwd
}

// visibleKeys gives for each query the run of keys that it may see, and the weight of the query in
// the mean. Queries stand at the end of their sequence's keys.
func visibleKeys(_ *Backend, c *kernels.Call) {
	cuQ, cuK, see, mean := c.In[0].I32(), c.In[1].I32(), c.Out[0].I32(), c.Out[1].F32()
	clear(see)
	clear(mean)
	for s := range len(cuQ) - 1 {
		for a := cuQ[s]; a < cuQ[s+1]; a++ {
			see[2*a], see[2*a+1] = cuK[s], max(cuK[s], cuK[s+1]-(cuQ[s+1]-1-a))
			mean[a] = float32(1 / float64(cuQ[len(cuQ)-1]-cuQ[0]))
		}
	}
}

// listed are the rows that query a lists.
func listed(idx []int32, n, a int) []int32 {
	rows := idx[a*n : (a+1)*n]
	for i, j := range rows {
		if j < 0 { // the others are copied together
			out := append([]int32(nil), rows[:i]...)
			for _, j := range rows[i:] {
				if j >= 0 {
					out = append(out, j)
				}
			}
			return out
		}
	}
	return rows
}

// headRows reads rows of one head of a [rows, heads, width] tensor: its own storage, or a copy.
type headRows struct {
	rowsOf
	buf []float32
}

func (w *worker) headRows(t *tensor.Tensor, h int) headRows {
	return headRows{headOf(t, h), w.arena.f32(t.Shape[2])}
}

// row is good until the next call.
func (r *headRows) row(w *worker, i int) []float32 {
	if r.v.d == tensor.F32 {
		return r.v.f[i*r.ld:][:r.width:r.width]
	}
	w.k.read(r.buf, r.v, i*r.ld)
	return r.buf
}

// rowDots sets out to the products of x with rows.
func (w *worker) rowDots(out, x []float32, r *headRows, rows []int32) {
	for b, j := range rows {
		out[b] = w.k.dot(x, r.row(w, int(j)))
	}
}

// sparseTile is how many queries a task takes.
const sparseTile = 4

// attentionSparse is attention to listed keys only. Heads that share their keys take a way that gathers these once.
func attentionSparse(b *Backend, c *kernels.Call) {
	q, k, v, o, lse := c.In[0], c.In[1], c.In[2], c.Out[0], c.Out[1].F32()
	if b.k.shares(cmp.Or(c.Attr.I[0], q.Shape[1]/max(1, k.Shape[1])), 1) {
		attentionShared(b, c)
		return
	}
	t, h, group := q.Shape[0], q.Shape[1], q.Shape[1]/max(1, k.Shape[1])
	idx, n := c.In[3].I32(), c.In[3].Shape[1]
	scale := float32(c.Attr.F[0]) * log2e
	work := t * h * n * (q.Shape[2] + v.Shape[2])
	b.shareWork(ceilDiv(t, sparseTile), work, func(w *worker, i int) {
		s, acc := w.arena.f32(n), w.arena.f32(v.Shape[2])
		for a := i * sparseTile; a < min(t, (i+1)*sparseTile); a++ {
			rows := listed(idx, n, a)
			for j := range h {
				m := w.arena.mark()
				qs, ks, vs := w.headRows(q, j), w.headRows(k, j/group), w.headRows(v, j/group)
				p := s[:len(rows)]
				w.rowDots(p, qs.row(w, a), &ks, rows)
				most, sum := w.k.soft(p, p, scale, float32(math.Inf(-1)))
				clear(acc)
				for b, row := range rows {
					w.k.axpy(acc, vs.row(w, int(row)), p[b])
				}
				if len(rows) > 0 {
					w.k.scale(acc, acc, 1/sum)
					lse[a*h+j] = float32((float64(most) + log2(sum)) * math.Ln2)
				} else {
					lse[a*h+j] = float32(math.Inf(-1))
				}
				w.k.write(viewOf(o), (a*h+j)*len(acc), acc)
				w.arena.release(m)
			}
		}
	})
}

// attentionSparseBwd shares out key heads: the gradients of one sum over queries in their order.
func attentionSparseBwd(b *Backend, c *kernels.Call) {
	q, k, v, n := c.In[1], c.In[2], c.In[3], c.In[6].Shape[1]
	if b.k.shares(cmp.Or(c.Attr.I[0], q.Shape[1]/max(1, k.Shape[1])), 1) {
		attentionSharedBwd(b, c)
		return
	}
	t, h, g := q.Shape[0], q.Shape[1], k.Shape[1]
	work := t * h * n * (3*q.Shape[2] + 2*v.Shape[2])
	b.shareWork(g, work, func(w *worker, i int) {
		dk, dv := w.sums(c.Out[1], i), w.sums(c.Out[2], i)
		ks, vs := w.headRows(k, i), w.headRows(v, i)
		for a := range t {
			rows := listed(c.In[6].I32(), n, a)
			for j := i * h / g; j < (i+1)*h/g; j++ {
				m := w.arena.mark()
				w.sparseGrads(c, a, j, rows, &ks, &vs, dk, dv)
				w.arena.release(m)
			}
		}
		dk.store(w)
		dv.store(w)
	})
}

// sparseGrads adds what head j of query a gives to the gradients of its keys and values, and computes the query's own.
func (w *worker) sparseGrads(c *kernels.Call, a, j int, rows []int32, ks, vs *headRows, dk, dv headSums) {
	dos, qs, os := w.headRows(c.In[0], j), w.headRows(c.In[1], j), w.headRows(c.In[4], j)
	dy, x := dos.row(w, a), qs.row(w, a)
	p, ds, dp := w.arena.f32(len(rows)), w.arena.f32(len(rows)), w.arena.f32(len(rows))
	w.rowDots(p, x, ks, rows)
	w.rowDots(dp, dy, vs, rows)
	delta := w.k.dot(dy, os.row(w, a))
	h, scale := c.In[1].Shape[1], float32(c.Attr.F[0])
	w.k.softGrad(p, ds, p, dp, scale*log2e, c.In[5].F32()[a*h+j]*log2e, delta, scale)
	dx := w.arena.zero(len(x))
	for b, row := range rows {
		w.k.axpy(dx, ks.row(w, int(row)), ds[b])
		w.k.axpy(dk.row(int(row)), x, ds[b])
		w.k.axpy(dv.row(int(row)), dy, p[b])
	}
	w.k.write(viewOf(c.Out[0]), (a*h+j)*len(dx), dx[:len(x)])
}

// headSums are sums in float32 for each row of one head: the tensor's own storage, or scratch.
type headSums struct {
	rowsOf
	sums []float32 // nil where they are the tensor's
}

// sums is room for float32 sums over the rows of a head: the tensor itself if it is float32, else scratch.
func (w *worker) sums(t *tensor.Tensor, h int) headSums {
	s := headSums{rowsOf: headOf(t, h)}
	if t.DType != tensor.F32 {
		s.sums = w.arena.zero(t.Shape[0] * s.width)[:t.Shape[0]*s.width]
		return s
	}
	for i := range t.Shape[0] {
		clear(s.row(i))
	}
	return s
}

// row is the sum of row i, wherever it lies.
func (s headSums) row(i int) []float32 {
	if s.sums != nil {
		return s.sums[i*s.width:][:s.width]
	}
	return s.v.f[i*s.ld:][:s.width:s.width]
}

// store rounds sums that are not the tensor's.
func (s headSums) store(w *worker) {
	for i := 0; i < len(s.sums)/max(1, s.width); i++ {
		w.k.write(s.v, i*s.ld, s.row(i))
	}
}
