package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

func init() {
	table[kernels.CutParts] = cutParts
	table[kernels.AttentionPart] = func(b *Backend, c *kernels.Call) {
		a := b.attn(c.In[0], c.In[1], c.In[2], c, len(c.In))
		a.place = c.In[5].I32()
		b.attend(&a, c)
	}
	table[kernels.AttentionPartBwd] = func(b *Backend, c *kernels.Call) {
		a := b.attn(c.In[1], c.In[2], c.In[3], c, len(c.In))
		a.place = c.In[8].I32()
		b.attendBwd(a, c)
	}
	table[kernels.AttentionMerge] = attentionMerge
}

// cutParts moves every border into its part, and counts what sequences lose at their start.
func cutParts(_ *Backend, c *kernels.Call) {
	cuQ, cuK, q, k, place := c.In[0].I32(), c.In[1].I32(), c.Out[0].I32(), c.Out[1].I32(), c.Out[2].I32()
	i := c.Attr.I
	for s := range cuQ {
		q[s] = min(max(cuQ[s]-int32(i[0]), 0), int32(i[1]))
		k[s] = min(max(cuK[s]-int32(i[2]), 0), int32(i[3]))
	}
	for s := range place {
		place[s] = cuK[s+1] - cuQ[s+1] + q[s] - k[s] + int32(i[0]-i[2])
	}
}

// attentionMerge weighs the rows of two parts by their sums of exponentials.
func attentionMerge(b *Backend, c *kernels.Call) {
	oa, ob, o := viewOf(c.In[0]), viewOf(c.In[2]), viewOf(c.Out[0])
	la, lb, lse := c.In[1].F32(), c.In[3].F32(), c.Out[1].F32()
	e := c.In[0].Shape[2]
	b.rows(len(la), 2*e, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			m := w.arena.mark()
			var fa, fb float32
			lse[i], fa, fb = mergeWeights(la[i], lb[i])
			x, y := w.arena.zero(e), w.arena.zero(e)
			if !math.IsInf(float64(la[i]), -1) {
				w.k.read(x, oa, i*e)
				w.k.scale(x, x, fa)
			}
			if !math.IsInf(float64(lb[i]), -1) {
				w.k.read(y, ob, i*e)
				w.k.scale(y, y, fb)
			}
			w.k.add(x, x, y)
			w.k.write(o, i*e, x)
			w.arena.release(m)
		}
	})
}

// mergeWeights is log(exp(a)+exp(b)), and the share that each of the two has; -Inf and no share where both are -Inf.
func mergeWeights(a, b float32) (lse, fa, fb float32) {
	top := max(a, b)
	if math.IsInf(float64(top), -1) {
		return top, 0, 0
	}
	x, y := math.Exp(float64(a-top)), math.Exp(float64(b-top))
	return float32(float64(top) + math.Log(x+y)), float32(x / (x + y)), float32(y / (x + y))
}
