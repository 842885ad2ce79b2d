package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// onProcessor is an operation on few numbers that all backends of a processor share.
func onProcessor(f func(c *kernels.Call)) func(*Backend, *kernels.Call) {
	return func(_ *Backend, c *kernels.Call) { f(c) }
}

// logitsNLL takes the sums of linear_lse over logits that somebody else has computed.
func logitsNLL(b *Backend, c *kernels.Call) {
	z, target, y, v := c.In[0].F32(), c.In[1].I32(), c.Out[0].F32(), lastDim(c.In[0])
	d, most, shards := kernels.NumberedActivation(c.Attr.I[0]), float32(c.Attr.F[0]), max(1, c.Attr.I[1])
	b.rows(len(y), v, func(w *worker, from, to int) {
		defer w.arena.release(w.arena.mark())
		row := w.arena.f32(min(v, ceCols))
		for i := from; i < to; i++ {
			y[i] = w.rowNLL(z[i*v:(i+1)*v], row, int(target[i]), d, most, shards)
		}
	})
}

// rowNLL is logitsNLL of one row; scratch holds a block of logits.
func (w *worker) rowNLL(z, scratch []float32, target int, d tensor.DType, most float32, shards int) float32 {
	if target < 0 {
		return 0
	}
	defer w.arena.release(w.arena.mark())
	lse := w.arena.f32(shards)
	for i := range lse {
		from, to := kernels.Shard(len(z), i, shards)
		top, sum := float32(math.Inf(-1)), float32(0)
		for j := from; j < to; j += ceCols {
			block := scratch[:copy(scratch, z[j:to])]
			w.addExp(nil, d, block, 0, j-from, &top, &sum, most)
		}
		lse[i] = top + float32(math.Log(float64(sum)))
	}
	return float32(logSumExp(lse)) - cappedBy(z[target], most) // as lse_join
}
