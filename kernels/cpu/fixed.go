package cpu

import (
	"sync/atomic"

	"github.com/lfactor/lfactor/kernels"
)

func init() {
	table[kernels.FixedAdd] = fixedAdd
	table[kernels.FixedSum] = func(b *Backend, c *kernels.Call) {
		b.elements(c.Out[0].Len(), func(_ *worker, at, n int) { kernels.StoreFixedSum(c, at, at+n) })
	}
	table[kernels.FixedRead] = func(b *Backend, c *kernels.Call) {
		b.elements(c.Out[0].Len(), func(_ *worker, at, n int) { kernels.StoreFixedRead(c, at, at+n) })
	}
	table[kernels.FixedSquares] = func(b *Backend, c *kernels.Call) { kernels.StoreFixedSquares(c, b.k.sumSquares) }
}

// fixedAdd adds numbers to sums in fixed point.
func fixedAdd(b *Backend, c *kernels.Call) {
	x, q, add := viewOf(c.In[0]), c.Out[0].I64(), c.Attr.I[0] == kernels.Accumulate
	h := [2]float64{c.Attr.F[0], kernels.FixedMagic}
	var over atomic.Bool
	b.elements(len(q), func(w *worker, at, n int) {
		in, out := w.in(x, at, n), q[at:at+n]
		if !add {
			clear(out)
		}
		if f := w.k.fixedAdd; f != nil {
			whole := n / w.k.lanes * w.k.lanes
			f(out, in[:whole], &h[0])
			if !kernels.FixedWithin(w.k.absMax(in[:whole]), c.Attr.F[0]) {
				over.Store(true)
			}
			in, out = in[whole:], out[whole:]
		}
		if !kernels.Fixed(out, in, c.Attr.F[0], true) {
			over.Store(true)
		}
	})
	if over.Load() {
		c.Out[1].I64()[0]++
	}
}
