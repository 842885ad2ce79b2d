package ref

import "github.com/lfactor/lfactor/kernels"

func init() {
	table[kernels.GroupedLinear], table[kernels.GroupedLinearDX],
		table[kernels.GroupedLinearDW] = groupedLinear, groupedLinearDX, groupedLinearDW
}

// eachGroup calls f with the rows of every group.
func eachGroup(off []int32, f func(g, from, to int)) {
	for g := range len(off) - 1 {
		f(g, int(off[g]), int(off[g+1]))
	}
}

func groupedLinear(c *kernels.Call) {
	x, w, y := load(c.In[0]), load(c.In[1]), make([]float64, c.Out[0].Len())
	n, k := c.In[1].Shape[1], c.In[1].Shape[2]
	eachGroup(c.In[2].I32(), func(g, from, to int) {
		copy(y[from*n:], matNT(x[from*k:], w[g*n*k:], to-from, n, k))
	})
	store(c.Out[0], y)
}

func groupedLinearDX(c *kernels.Call) {
	dy, w, dx := load(c.In[0]), load(c.In[1]), make([]float64, c.Out[0].Len())
	n, k := c.In[1].Shape[1], c.In[1].Shape[2]
	eachGroup(c.In[2].I32(), func(g, from, to int) {
		copy(dx[from*k:], matNN(dy[from*n:], w[g*n*k:], to-from, n, k))
	})
	store(c.Out[0], dx)
}

func groupedLinearDW(c *kernels.Call) {
	dy, x, dw := load(c.In[0]), load(c.In[1]), make([]float64, c.Out[0].Len())
	n, k := c.Out[0].Shape[1], c.Out[0].Shape[2]
	eachGroup(c.In[2].I32(), func(g, from, to int) {
		copy(dw[g*n*k:], matTN(dy[from*n:], x[from*k:], to-from, n, k))
	})
	storeOrAdd(c.Out[0], dw, c.Attr.I[0])
}
