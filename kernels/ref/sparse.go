package ref

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// The operations of sparse attention with an indexer (DeepSeek-V3.2).
func init() {
	table[kernels.VisibleKeys], table[kernels.IndexTopK] = visibleKeys, indexTopK
	table[kernels.AttentionSparse], table[kernels.AttentionSparseBwd] = attentionSparse, attentionSparseBwd
	table[kernels.IndexLoss], table[kernels.IndexLossBwd] = indexLoss, indexLossBwd
}

// visibleKeys sets the range of keys that each query may see before any is chosen, and the weight of its
// row in a mean over all rows.
func visibleKeys(c *kernels.Call) {
	cuQ, cuK, see, mean := c.In[0].I32(), c.In[1].I32(), c.Out[0].I32(), c.Out[1].F32()
	clear(see)
	clear(mean)
	for _, r := range queries(kernels.Attr{I: [4]int{1}}, cuQ, cuK, nil) {
		see[2*r.row], see[2*r.row+1] = int32(r.from), int32(r.to)
		mean[r.row] = float32(1 / float64(cuQ[len(cuQ)-1]-cuQ[0]))
	}
}

// indexer is what the indexer makes of tokens.
type indexer struct {
	q, k  heads
	w     []float64
	scale float64
}

func indexerOf(q, k, w *tensor.Tensor, scale float64) indexer {
	return indexer{loadHeads(q), loadHeads(k), load(w), scale}
}

// score is that of key row j for query a.
func (x indexer) score(a, j int) (s float64) {
	for i := range x.q.h {
		s += x.w[a*x.q.h+i] * math.Max(dot(x.q.row(a, i), x.k.row(j, 0)), 0)
	}
	return x.scale * s
}

// indexTopK sets the keys of the best index scores of each query, in the order of the keys; ties go to the earlier one.
func indexTopK(c *kernels.Call) {
	x, see, idx := indexerOf(c.In[0], c.In[1], c.In[2], c.Attr.F[0]), c.In[3].I32(), c.Out[0].I32()
	n := c.Out[0].Shape[1]
	for a := range c.In[0].Shape[0] {
		var rows []int32
		score := map[int32]float64{}
		for j := see[2*a]; j < see[2*a+1]; j++ {
			rows = append(rows, j)
			if score[j] = x.score(a, int(j)); math.IsNaN(score[j]) {
				score[j] = math.Inf(1)
			}
		}
		slices.SortStableFunc(rows, func(i, j int32) int {
			switch {
			case score[i] > score[j]:
				return -1
			case score[i] < score[j]:
				return 1
			}
			return 0
		})
		rows = rows[:min(n, len(rows))]
		slices.Sort(rows)
		for i := range n {
			if idx[a*n+i] = -1; i < len(rows) {
				idx[a*n+i] = rows[i]
			}
		}
	}
}

// listed are the rows of keys of query a.
func listed(idx *tensor.Tensor, a int) (rows []int) {
	n := idx.Shape[1]
	for _, j := range idx.I32()[a*n : (a+1)*n] {
		if j >= 0 {
			rows = append(rows, int(j))
		}
	}
	return rows
}

// attentionSparse is attention of each query over its chosen keys alone.
func attentionSparse(c *kernels.Call) {
	q, k, v, o := loadHeads(c.In[0]), loadHeads(c.In[1]), loadHeads(c.In[2]), zeroHeads(c.Out[0])
	lse := make([]float64, c.Out[1].Len())
	for at := range lse {
		a, i := at/q.h, at%q.h
		g, rows := i*k.h/q.h, listed(c.In[3], a)
		s := make([]float64, len(rows))
		for b, j := range rows {
			s[b] = c.Attr.F[0] * dot(q.row(a, i), k.row(j, g))
		}
		lse[at] = logSumExp(s)
		for b, j := range rows {
			axpy(o.row(a, i), math.Exp(s[b]-lse[at]), v.row(j, g))
		}
	}
	store(c.Out[0], o.v)
	store(c.Out[1], lse)
}

// attentionSparseBwd is its gradient for queries, keys and values; the choice has none.
func attentionSparseBwd(c *kernels.Call) {
	do, q, k, v, o := loadHeads(c.In[0]), loadHeads(c.In[1]), loadHeads(c.In[2]), loadHeads(c.In[3]), loadHeads(c.In[4])
	dq, dk, dv := zeroHeads(c.Out[0]), zeroHeads(c.Out[1]), zeroHeads(c.Out[2])
	for at, l := range load(c.In[5]) {
		a, i := at/q.h, at%q.h
		g, delta := i*k.h/q.h, dot(do.row(a, i), o.row(a, i))
		for _, j := range listed(c.In[6], a) {
			p := probability(c.Attr.F[0]*dot(q.row(a, i), k.row(j, g)) - l)
			ds := c.Attr.F[0] * p * (dot(do.row(a, i), v.row(j, g)) - delta)
			axpy(dq.row(a, i), ds, k.row(j, g))
			axpy(dk.row(j, g), ds, q.row(a, i))
			axpy(dv.row(j, g), p, do.row(a, i))
		}
	}
	store(c.Out[0], dq.v)
	store(c.Out[1], dk.v)
	store(c.Out[2], dv.v)
}

// indexCall is what index_loss compares: the indexer's distribution over a query's keys and attention's.
type indexCall struct {
	indexer
	attnQ, attnK heads
	attnScale    float64
	see          []int32
	mean         []float64
	idx          *tensor.Tensor
}

// indexCallOf reads the operands that the operations of the indexer share.
func indexCallOf(in []*tensor.Tensor, at kernels.Attr) indexCall {
	x := indexCall{indexer: indexerOf(in[0], in[1], in[2], at.F[0]), attnQ: loadHeads(in[3]), attnK: loadHeads(in[4]),
		attnScale: at.F[1],
		see:       in[5].I32(), mean: load(in[6]), idx: nil}
	if len(in) > 7 {
		x.idx = in[7]
	}
	return x
}

// shares are the keys of query a, and for each the logarithm of the indexer's share and attention's share.
func (x *indexCall) shares(a int) (rows []int, log, p []float64) {
	if x.idx != nil {
		rows = listed(x.idx, a)
	} else {
		for j := x.see[2*a]; j < x.see[2*a+1]; j++ {
			rows = append(rows, int(j))
		}
	}
	log, p = make([]float64, len(rows)), make([]float64, len(rows))
	for b, j := range rows {
		log[b] = x.score(a, j)
	}
	all := logSumExp(log)
	for b := range log {
		log[b] -= all
	}
	for i := range x.attnQ.h {
		s := make([]float64, len(rows))
		for b, j := range rows {
			s[b] = x.attnScale * dot(x.attnQ.row(a, i), x.attnK.row(j, i*x.attnK.h/x.attnQ.h))
		}
		l := logSumExp(s)
		for b := range s {
			p[b] += math.Exp(s[b]-l) / float64(x.attnQ.h)
		}
	}
	return rows, log, p
}

// indexLoss sets the divergence of the indexer's scores from attention's, summed over the heads
// (DeepSeek-V3.2, section 2).
func indexLoss(c *kernels.Call) {
	x, loss := indexCallOf(c.In, c.Attr), 0.0
	for a, mean := range x.mean {
		rows, log, p := x.shares(a)
		for b := range rows {
			if p[b] != 0 {
				loss += mean * p[b] * (math.Log(p[b]) - log[b])
			}
		}
	}
	store(c.Out[0], []float64{loss})
}

// indexLossBwd is its gradient for the indexer's queries, keys and weights.
func indexLossBwd(c *kernels.Call) {
	x, dloss := indexCallOf(c.In[1:], c.Attr), load(c.In[0])[0]
	dq, dk, dw := zeroHeads(c.Out[0]), zeroHeads(c.Out[1]), make([]float64, c.Out[2].Len())
	for a, mean := range x.mean {
		rows, log, p := x.shares(a)
		for b, j := range rows {
			ds := x.scale * dloss * mean * (math.Exp(log[b]) - p[b])
			for i := range x.q.h {
				s, w := dot(x.q.row(a, i), x.k.row(j, 0)), x.w[a*x.q.h+i]
				if s <= 0 {
					continue
				}
				dw[a*x.q.h+i] += ds * s
				axpy(dq.row(a, i), ds*w, x.k.row(j, 0))
				axpy(dk.row(j, 0), ds*w, x.q.row(a, i))
			}
		}
	}
	store(c.Out[0], dq.v)
	store(c.Out[1], dk.v)
	store(c.Out[2], dw)
}
