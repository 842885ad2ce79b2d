package ref

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

// The operations of sequences that several ranks share.
func init() {
	table[kernels.CutSequences] = cutSequences
	table[kernels.CutParts] = cutParts
	table[kernels.AttentionPart] = func(c *kernels.Call) { attend(c, mask{}, c.In[5].I32()) }
	table[kernels.AttentionPartBwd] = func(c *kernels.Call) { attendBwd(c, mask{}, c.In[8].I32()) }
	table[kernels.AttentionMerge] = attentionMerge
}

// cutParts brings every border into the rows of the part; what a border was moved by is how many rows a
// sequence has lost at its start.
func cutParts(c *kernels.Call) {
	cuQ, cuK, q, k, place := c.In[0].I32(), c.In[1].I32(), c.Out[0].I32(), c.Out[1].I32(), c.Out[2].I32()
	fromQ, toQ := int32(c.Attr.I[0]), int32(c.Attr.I[0]+c.Attr.I[1])
	fromK, toK := int32(c.Attr.I[2]), int32(c.Attr.I[2]+c.Attr.I[3])
	for s := range cuQ {
		atQ, atK := min(max(cuQ[s], fromQ), toQ), min(max(cuK[s], fromK), toK)
		q[s], k[s] = atQ-fromQ, atK-fromK
		if s < len(place) {
			ahead := (cuK[s+1] - cuK[s]) - (cuQ[s+1] - cuQ[s])
			place[s] = ahead + (atQ - cuQ[s]) - (atK - cuK[s])
		}
	}
}

// attentionMerge joins two parts of an attention over the keys: o = Σ exp(lse_i − lse)·o_i with
// lse = log(exp(lse_a) + exp(lse_b)); a part that saw no key has lse = −∞ and adds nothing.
func attentionMerge(c *kernels.Call) {
	a, la, b, lb := loadHeads(c.In[0]), load(c.In[1]), loadHeads(c.In[2]), load(c.In[3])
	o, lse := zeroHeads(c.Out[0]), make([]float64, len(la))
	for i := range lse {
		lse[i] = logSumExp([]float64{la[i], lb[i]})
		if row := o.row(i/o.h, i%o.h); !math.IsInf(la[i], -1) {
			axpy(row, math.Exp(la[i]-lse[i]), a.row(i/o.h, i%o.h))
		}
		if row := o.row(i/o.h, i%o.h); !math.IsInf(lb[i], -1) {
			axpy(row, math.Exp(lb[i]-lse[i]), b.row(i/o.h, i%o.h))
		}
	}
	store(c.Out[0], o.v)
	store(c.Out[1], lse)
}

// cutSequences counts the queries of each sequence row by row.
func cutSequences(c *kernels.Call) {
	cuQ, cuK, q, k := c.In[0].I32(), c.In[1].I32(), c.Out[0].I32(), c.Out[1].I32()
	from, to := int32(c.Attr.I[0]), int32(c.Attr.I[0]+c.Attr.I[1])
	first, last, behind := -1, -1, int32(0)
	q[0] = max(0, min(cuQ[0], to)-from)
	for s := range len(cuQ) - 1 {
		q[s+1] = q[s]
		later := int32(0)
		for row := cuQ[s]; row < cuQ[s+1]; row++ {
			if row >= to {
				later++
			} else if row >= from {
				q[s+1]++
			}
		}
		if q[s+1] > q[s] {
			if first < 0 {
				first = s
			}
			last, behind = s, later
		}
	}
	for s := range k {
		switch {
		case first < 0:
			k[s] = cuK[0]
		case s > last:
			k[s] = cuK[last+1] - behind
		default:
			k[s] = cuK[max(s, first)]
		}
	}
}
