package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// The indexer of sparse attention: scores of keys, the best of them, and what it is trained with.

func init() {
	table[kernels.IndexTopK] = indexTopK
	table[kernels.IndexLoss], table[kernels.IndexLossBwd] = indexLoss, indexLossBwd
}

// Queries whose scores one task computes, and keys that it multiplies them with at a time.
const (
	topKTile  = 8
	indexKeys = 256
)

// indexer is what the indexer makes of tokens.
type indexer struct {
	q, k  *tensor.Tensor
	w     []float32
	scale float32
}

// queries are the rows of queries [a, a+n), all heads, as the left side of products.
func (x *indexer) queries(w *worker, a, n int) operand {
	h, r := x.q.Shape[1], x.q.Shape[2]
	return w.operandRows(rowsOf{viewOf(x.q).from(min(a*h*r, x.q.Len())), r, r}, n*h)
}

// fold adds up the heads of one query: out[j] = scale·Σ w[i]·max(raw[i][j], 0).
func (x *indexer) fold(out, raw []float32, ld, a int) {
	clear(out)
	for i := range x.q.Shape[1] {
		by := x.w[a*x.q.Shape[1]+i]
		for j, s := range raw[i*ld:][:len(out)] {
			out[j] += by * max(s, 0)
		}
	}
	for j := range out {
		out[j] *= x.scale
	}
}

// indexTopK chooses for each query the keys with the highest scores, among those that it may see.
// Queries are taken in tiles, whose keys are scored once for all of them.
func indexTopK(b *Backend, c *kernels.Call) {
	x := &indexer{c.In[0], c.In[1], c.In[2].F32(), float32(c.Attr.F[0])}
	t, h, r := x.q.Shape[0], x.q.Shape[1], x.q.Shape[2]
	see, idx, n := c.In[3].I32(), c.Out[0].I32(), c.Out[0].Shape[1]
	b.shareWork(ceilDiv(t, topKTile), t*h*r*x.k.Shape[0]/2, func(w *worker, i int) {
		a0, a1 := i*topKTile, min(t, (i+1)*topKTile)
		lo, hi := int(see[2*a0]), int(see[2*a0+1])
		for a := a0; a < a1; a++ {
			lo, hi = min(lo, int(see[2*a])), max(hi, int(see[2*a+1]))
		}
		scores := w.indexScores(x, a0, a1, lo, hi)
		for a := a0; a < a1; a++ {
			from, to := int(see[2*a]), int(see[2*a+1])
			w.best(idx[a*n:(a+1)*n], scores[(a-a0)*(hi-lo)+from-lo:][:to-from], from)
		}
	})
}

// indexScores are those of queries [a0, a1) and keys [lo, hi), a row a query.
func (w *worker) indexScores(x *indexer, a0, a1, lo, hi int) []float32 {
	h, r := x.q.Shape[1], x.q.Shape[2]
	out := w.arena.f32((a1 - a0) * (hi - lo))
	q := x.queries(w, a0, a1-a0)
	tall, ld := roundUp((a1-a0)*h, w.k.mr), indexKeys+2*line
	raw := w.arena.f32(tall * ld)
	for j := lo; j < hi; j += indexKeys {
		m := w.arena.mark()
		n := min(indexKeys, hi-j)
		w.product(raw, ld, tall, roundUp(n, w.k.nr), r, q, w.packColumns(headOf(x.k, 0).at(j), n), false)
		for a := a0; a < a1; a++ {
			x.fold(out[(a-a0)*(hi-lo)+j-lo:][:n], raw[(a-a0)*h*ld:], ld, a)
		}
		w.arena.release(m)
	}
	return out
}

// best lists the places of the greatest scores, counted from a row, in ascending order, and -1 behind them.
func (w *worker) best(idx []int32, scores []float32, from int) {
	n := min(len(idx), len(scores))
	for i := range idx[n:] {
		idx[n+i] = -1
	}
	if n == len(scores) {
		for i := range n {
			idx[i] = int32(from + i)
		}
		return
	}
	for i, s := range scores {
		if s != s { // not a number
			scores[i] = float32(math.Inf(1))
		}
	}
	m := w.arena.mark()
	least, above := nth(append(w.arena.f32(len(scores))[:0], scores...), n)
	w.arena.release(m)
	equal, at := n-above, 0
	for i, s := range scores {
		if s == least && equal > 0 {
			equal--
		} else if s <= least {
			continue
		}
		idx[at] = int32(from + i)
		at++
	}
}

// nth is the n-th greatest of v, whose order it changes, and how many are greater.
func nth(v []float32, n int) (x float32, above int) {
	for {
		pivot := middle(v[0], v[len(v)/2], v[len(v)-1])
		greater, less := 0, len(v)
		for i := 0; i < less; {
			switch {
			case v[i] > pivot:
				v[i], v[greater] = v[greater], v[i]
				greater++
				i++
			case v[i] < pivot:
				less--
				v[i], v[less] = v[less], v[i]
			default:
				i++
			}
		}
		switch {
		case n <= greater:
			v = v[:greater]
		case n <= less:
			return pivot, above + greater
		default:
			v, n, above = v[less:], n-less, above+less
		}
	}
}

func middle(a, b, c float32) float32 { return max(min(a, b), min(max(a, b), c)) }

// indexShares are what index_loss compares for one query: its keys, the indexer's scores before heads are
// added up, a row a head, the logarithms of the indexer's shares, and attention's shares.
type indexShares struct {
	rows   []int32
	raw    []float32
	log, p []float32
}

// indexCall is a call of index_loss from its operand iq on.
type indexCall struct {
	indexer
	attnQ, attnK *tensor.Tensor
	attnScale    float32
	see          []int32
	mean         []float32
	idx          []int32 // nil for all visible keys
	n            int     // keys of a query at most
}

// indexCallOf reads the operands of the indexer's loss; the list of keys is absent where it is taken over all keys.
func indexCallOf(in []*tensor.Tensor, at kernels.Attr) *indexCall {
	x := &indexCall{indexer: indexer{in[0], in[1], in[2].F32(), float32(at.F[0])}, attnQ: in[3], attnK: in[4],
		attnScale: float32(at.F[1]),
		see:       in[5].I32(), mean: in[6].F32(), idx: nil, n: in[1].Shape[0]}
	if len(in) > 7 && in[7] != nil {
		x.idx, x.n = in[7].I32(), in[7].Shape[1]
	}
	return x
}

// work is the multiplications of the loss.
func (x *indexCall) work() int { return (x.q.Len() + x.attnQ.Len()) * x.n }

// keys are those of query a.
func (x *indexCall) keys(a int) []int32 {
	if x.idx != nil {
		return listed(x.idx, x.n, a)
	}
	rows := make([]int32, x.see[2*a+1]-x.see[2*a])
	for i := range rows {
		rows[i] = x.see[2*a] + int32(i)
	}
	return rows
}

// shares computes them for query a; raw may be nil.
func (w *worker) shares(x *indexCall, a int, raw []float32) *indexShares {
	h, r := x.q.Shape[1], x.q.Shape[2]
	s := &indexShares{rows: x.keys(a)}
	c := len(s.rows)
	if s.raw = raw; raw == nil {
		s.raw = w.arena.f32(h * c)
	}
	s.log, s.p = w.arena.f32(c), w.arena.zero(c)[:c]
	m := w.arena.mark()
	q, ks := x.queries(w, a, 1), w.headRows(x.k, 0)
	some, tile := w.arena.f32(indexKeys*r), w.arena.f32(roundUp(h, w.k.mr)*(indexKeys+2*line))
	for j := 0; j < c; j += indexKeys {
		n := min(indexKeys, c-j)
		for b := range n {
			copy(some[b*r:][:r], ks.row(w, int(s.rows[j+b])))
		}
		inner := w.arena.mark()
		w.product(tile, indexKeys+2*line, roundUp(h, w.k.mr), roundUp(n, w.k.nr), r, q,
			w.packColumns(rowsOf{view{f: some}, r, r}, n), false)
		for i := range h {
			copy(s.raw[i*c+j:][:n], tile[i*(indexKeys+2*line):])
		}
		w.arena.release(inner)
	}
	x.fold(s.log, s.raw, c, a)
	w.logShares(s.log)
	w.attentionShares(x, a, s)
	w.arena.release(m)
	return s
}

// logShares turns scores into the logarithms of their softmax.
func (w *worker) logShares(s []float32) {
	m := w.arena.mark()
	most, sum := w.k.soft(w.arena.f32(len(s)), s, log2e, float32(math.Inf(-1)))
	w.arena.release(m)
	w.k.shift(s, s, -float32((float64(most)+log2(sum))*math.Ln2))
	for i, x := range s {
		if x > 0 { // by rounding alone, a lot where scores are large
			s[i] = 0
		}
	}
}

// attentionShares adds up the softmax of all heads of query a.
func (w *worker) attentionShares(x *indexCall, a int, s *indexShares) {
	h, g, e := x.attnQ.Shape[1], x.attnK.Shape[1], w.arena.f32(len(s.rows))
	add := func(scores []float32) {
		_, sum := w.k.soft(scores, scores, x.attnScale*log2e, float32(math.Inf(-1)))
		w.k.axpy(s.p, scores, 1/(sum*float32(h)))
	}
	if w.k.shares(h, g) {
		for i := range g {
			m := w.arena.mark()
			all, ld := w.listedScores(w.sharedHeads(x.attnQ, a, i, h/g), headOf(x.attnK, i), s.rows)
			for j := range h / g {
				add(all[j*ld:][:len(s.rows)])
			}
			w.arena.release(m)
		}
		return
	}
	for i := range h {
		m := w.arena.mark()
		qs, ks := w.headRows(x.attnQ, i), w.headRows(x.attnK, i*x.attnK.Shape[1]/h)
		w.rowDots(e, qs.row(w, a), &ks, s.rows)
		add(e)
		w.arena.release(m)
	}
}

// indexLoss is the divergence of the indexer's distribution over keys from that of attention,
// weighted per query and summed in the order of queries.
func indexLoss(b *Backend, c *kernels.Call) {
	x := indexCallOf(c.In, c.Attr)
	losses := make([]float64, len(x.mean))
	b.shareWork(len(losses), x.work(), func(w *worker, a int) {
		s := w.shares(x, a, nil)
		for j, p := range s.p {
			if p != 0 {
				losses[a] += float64(x.mean[a]) * float64(p) * (math.Log(float64(p)) - float64(s.log[j]))
			}
		}
	})
	sum := 0.0
	for _, l := range losses {
		sum += l
	}
	c.Out[0].F32()[0] = float32(sum)
}

// indexBlock is the numbers that queries of one round of index_loss_bwd keep at most.
const indexBlock = 1 << 24

// indexLossBwd takes some queries at a time: first the gradients of each query, then those of the keys, in
// ranges, by these queries in order.
func indexLossBwd(b *Backend, c *kernels.Call) {
	x, dloss := indexCallOf(c.In[1:], c.Attr), c.In[0].F32()[0]
	t, h, r := x.q.Shape[0], x.q.Shape[1], x.q.Shape[2]
	dk := b.shared.zero(x.k.Len())
	step := min(64, max(1, indexBlock/max(1, h*x.n)))
	raw, from := b.shared.f32(step*h*x.n), make([]*indexShares, step)
	for a0 := 0; a0 < t; a0 += step {
		n := min(step, t-a0)
		b.shareWork(n, (2*h*r+x.attnQ.Shape[1]*x.attnQ.Shape[2])*n*x.n, func(w *worker, i int) {
			s := w.shares(x, a0+i, raw[i*h*x.n:])
			w.indexGrads(x, s, c, a0+i, dloss)
			from[i] = s
		})
		b.shareWork(ceilDiv(x.k.Shape[0], indexKeys), n*h*r*x.n, func(w *worker, i int) {
			for at := range n {
				w.keyGrads(x, from[at], dk, a0+at, i*indexKeys, (i+1)*indexKeys)
			}
		})
	}
	b.k.write(viewOf(c.Out[1]), 0, dk[:x.k.Len()])
}

// indexGrads computes the gradients of one query and its weights, and leaves in s.raw what each key's
// gradient has of the query's heads.
func (w *worker) indexGrads(x *indexCall, s *indexShares, c *kernels.Call, a int, dloss float32) {
	h, r, n := x.q.Shape[1], x.q.Shape[2], len(s.rows)
	ks, dq, dw := w.headRows(x.k, 0), w.arena.zero(h*r), c.Out[2].F32()[a*h:][:h]
	clear(dw)
	for j := range s.rows {
		ds := x.scale * dloss * x.mean[a] * (float32(math.Exp(float64(s.log[j]))) - s.p[j])
		key := ks.row(w, int(s.rows[j]))
		for i := range h {
			dot := s.raw[i*n+j]
			if s.raw[i*n+j] = 0; dot <= 0 {
				continue
			}
			dw[i] += ds * dot
			s.raw[i*n+j] = ds * x.w[a*h+i]
			w.k.axpy(dq[i*r:][:r], key, s.raw[i*n+j])
		}
	}
	w.k.write(viewOf(c.Out[0]), a*h*r, dq[:h*r])
	// what is kept for the next pass does not lie in this worker's scratch
	s.log, s.p, s.rows = nil, nil, append([]int32(nil), s.rows...)
}

// keyGrads adds what query a gives to the gradients of keys [lo, hi).
func (w *worker) keyGrads(x *indexCall, s *indexShares, dk []float32, a, lo, hi int) {
	h, r, n := x.q.Shape[1], x.q.Shape[2], len(s.rows)
	q := w.in(viewOf(x.q), a*h*r, h*r)
	for j, row := range s.rows {
		if int(row) < lo || int(row) >= hi {
			continue
		}
		for i := range h {
			if by := s.raw[i*n+j]; by != 0 {
				w.k.axpy(dk[int(row)*r:][:r], q[i*r:][:r], by)
			}
		}
	}
}
