package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.LargestTo], table[kernels.Greatest] = largestTo, greatestOf
	table[kernels.DelayedScales] = delayedScales
}

func largestTo(_ *Backend, c *kernels.Call) {
	if len(c.In) > 1 && c.In[1] != nil && c.In[1].F64()[kernels.ClipOverflow] != 0 {
		return
	}
	x, y := c.In[0].F32(), c.Out[0].F32()
	for i, v := range x {
		if c.Attr.I[0]&kernels.Accumulate == 0 || v > y[i] {
			y[i] = v
		}
	}
}

// greatestOf makes the greatest magnitudes of three tensors.
func greatestOf(b *Backend, c *kernels.Call) {
	e := c.Out[0].F32()
	clear(e)
	for i, t := range c.In {
		e[i] = b.magnitude(t)
	}
}

// magnitude is the greatest of a tensor, +Inf where a number is not finite.
func (b *Backend) magnitude(t *tensor.Tensor) float32 {
	if t.Len() == 0 {
		return 0
	}
	defer b.shared.release(b.shared.mark())
	from, rows, width := viewOf(t), t.Rows(), lastDim(t)
	each := max(1, 4096/width)
	tasks := ceilDiv(rows, each)
	most := b.shared.f32(tasks)
	b.shareWork(tasks, rows*width*elementCost, func(w *worker, i int) {
		m := w.arena.mark()
		most[i] = w.k.absMax(w.rowsOf(from, i*each, min((i+1)*each, rows), width, kernels.Grain{}))
		w.arena.release(m)
	})
	if m := b.k.absMax(most); m-m == 0 {
		return m
	}
	return float32(math.Inf(1))
}

func delayedScales(_ *Backend, c *kernels.Call) {
	if c.In[1].F64()[kernels.ClipOverflow] == 0 {
		kernels.Remember(c.Out[0].F32(), c.In[0].F32())
	}
}
