package cpu

import "github.com/lfactor/lfactor/kernels"

func init() { table[kernels.PagedRows] = pagedRows }

// pagedRows copies rows.
func pagedRows(b *Backend, c *kernels.Call) {
	pool, fresh, at, y := c.In[0].Bytes(), c.In[1].Bytes(), c.In[2].I32(), c.Out[0].Bytes()
	n := rowBytes(len(at), len(y))
	b.rows(len(at), n/4, func(_ *worker, from, to int) {
		for i := from; i < to; i++ {
			src, j := pool, int(at[i])
			if j < 0 {
				src, j = fresh, -1-j
			}
			if dst := y[i*n : (i+1)*n]; j < len(src)/max(n, 1) {
				copy(dst, src[j*n:])
			} else {
				clear(dst)
			}
		}
	})
}

// rowBytes is the bytes of each of some rows.
func rowBytes(rows, all int) int { return all / max(rows, 1) }
