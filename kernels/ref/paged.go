package ref

import "github.com/lfactor/lfactor/kernels"

func init() { table[kernels.PagedRows] = pagedRows }

func pagedRows(c *kernels.Call) {
	pool, fresh, at, y := load(c.In[0]), load(c.In[1]), c.In[2].I32(), make([]float64, c.Out[0].Len())
	n := len(y) / max(len(at), 1)
	for i, j := range at {
		src, row := pool, int(j)
		if j < 0 {
			src, row = fresh, -1-int(j)
		}
		if n > 0 && row < len(src)/n {
			copy(y[i*n:(i+1)*n], src[row*n:])
		}
	}
	store(c.Out[0], y)
}
