package cpu

import "github.com/lfactor/lfactor/kernels"

func init() {
	table[kernels.JoinHeads], table[kernels.JoinHeadsBwd] = joinHeads, joinHeadsBwd
}

// joinHeads puts the row that all heads share before the row of each head.
func joinHeads(b *Backend, c *kernels.Call) {
	size := c.Out[0].DType.Size()
	shared, each, y := c.In[0].Bytes(), c.In[1].Bytes(), c.Out[0].Bytes()
	heads, r, n := c.In[1].Shape[1], lastDim(c.In[0])*size, lastDim(c.In[1])*size
	b.rows(c.In[1].Shape[0]*heads, lastDim(c.Out[0]), func(_ *worker, from, to int) {
		for i := from; i < to; i++ {
			row := y[i*(r+n) : (i+1)*(r+n)]
			copy(row[:r], shared[i/heads*r:])
			copy(row[r:], each[i*n:])
		}
	})
}

// joinHeadsBwd gives the shared row the sum over heads, and each head its own part as it is.
func joinHeadsBwd(b *Backend, c *kernels.Call) {
	dy, shared := viewOf(c.In[0]), viewOf(c.Out[0])
	size := c.In[0].DType.Size()
	from, to := c.In[0].Bytes(), c.Out[1].Bytes()
	heads, r, n := c.In[0].Shape[1], lastDim(c.Out[0]), lastDim(c.Out[1])
	b.rows(c.In[0].Shape[0], heads*(r+n), func(w *worker, first, end int) {
		for i := first; i < end; i++ {
			m := w.arena.mark()
			sum := w.out(shared, i*r, r)
			clear(sum)
			for j := i * heads; j < (i+1)*heads; j++ {
				m := w.arena.mark()
				w.k.add(sum, sum, w.in(dy, j*(r+n), r))
				w.arena.release(m)
				copy(to[j*n*size:(j+1)*n*size], from[(j*(r+n)+r)*size:])
			}
			w.done(shared, i*r, sum)
			w.arena.release(m)
		}
	})
}
