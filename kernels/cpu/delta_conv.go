package cpu

import "github.com/lfactor/lfactor/kernels"

func init() {
	table[kernels.CausalConv] = func(b *Backend, c *kernels.Call) { convolve(b, c, -1) }
	table[kernels.CausalConvDX] = func(b *Backend, c *kernels.Call) { convolve(b, c, 1) }
	table[kernels.CausalConvDW] = convDW
}

// taps gives the weights of each tap as a row.
func (w *worker) taps(c *kernels.Call) mat {
	wt, cols, n := viewOf(c.In[1]), c.In[1].Shape[0], c.In[1].Shape[1]
	raw, out := w.arena.f32(cols*n), w.mat(n, cols)
	w.k.read(raw, wt, 0)
	for col := range cols {
		for j := range n {
			out.v[j*out.step+col] = raw[col*n+j]
		}
	}
	return out
}

// sequenceOf is the sequence that a row lies in, or one that holds no row.
func sequenceOf(cu []int32, row int) (from, to int) {
	for s := range len(cu) - 1 {
		if row >= int(cu[s]) && row < int(cu[s+1]) {
			return int(cu[s]), int(cu[s+1])
		}
	}
	return 0, 0
}

// convolve is the causal convolution of each column with its own taps, within each sequence. sign
// is -1 to look back, and 1 for the gradient to the input, which looks forward.
func convolve(b *Backend, c *kernels.Call, sign int) {
	x, y, cu := viewOf(c.In[0]), viewOf(c.Out[0]), c.In[2].I32()
	cols := c.In[1].Shape[0]
	b.rows(c.In[0].Shape[0], 2*cols*c.In[1].Shape[1], func(w *worker, from, to int) {
		m := w.arena.mark()
		taps, n := w.taps(c), c.In[1].Shape[1]
		row, sum := w.arena.zero(roundUp(cols, line)), w.arena.zero(roundUp(cols, line))
		first, last := 0, 0
		for i := from; i < to; i++ {
			if i >= last {
				first, last = sequenceOf(cu, i)
			}
			clear(sum)
			for j := range n {
				if at := i + sign*(n-1-j); i < last && at >= first && at < last {
					w.k.read(row[:cols], x, at*cols)
					w.k.mulAcc(sum, row, taps.row(j), 1)
				}
			}
			w.k.write(y, i*cols, sum[:cols])
		}
		w.arena.release(m)
	})
}

// convColumns is the columns that a task of convDW sums over all rows.
const convColumns = 256

// convDW is the gradient to the taps. A task has some columns of all rows, so that each sum is made
// by one worker in a fixed order.
func convDW(b *Backend, c *kernels.Call) {
	dy, x, cu := viewOf(c.In[0]), viewOf(c.In[1]), c.In[2].I32()
	dw, all, n := c.Out[0].F32(), c.Out[0].Shape[0], c.Out[0].Shape[1]
	b.shareWork(ceilDiv(all, convColumns), 2*c.In[0].Len()*n, func(w *worker, task int) {
		at := task * convColumns
		cols := min(convColumns, all-at)
		sums := w.mat(n, cols)
		a, d := w.arena.zero(sums.step), w.arena.zero(sums.step)
		for s := range len(cu) - 1 {
			for i := int(cu[s]); i < int(cu[s+1]); i++ {
				w.k.read(d[:cols], dy, i*all+at)
				for j := range n {
					if from := i - (n - 1 - j); from >= int(cu[s]) {
						w.k.read(a[:cols], x, from*all+at)
						w.k.mulAcc(sums.row(j), d, a, 1)
					}
				}
			}
		}
		for col := range cols {
			for j := range n {
				v := sums.v[j*sums.step+col]
				if c.Attr.I[0] == kernels.Accumulate {
					v += dw[(at+col)*n+j]
				}
				dw[(at+col)*n+j] = v
			}
		}
	})
}
