package ref

import "github.com/lfactor/lfactor/kernels"

func init() {
	table[kernels.JoinHeads], table[kernels.JoinHeadsBwd] = joinHeads, joinHeadsBwd
}

// joinHeads lays, head by head, the still numbers of a key beside its turning numbers, which all heads share.
func joinHeads(c *kernels.Call) {
	shared, each := load(c.In[0]), load(c.In[1])
	r, n := lastDim(c.In[0]), lastDim(c.In[1])
	heads := c.In[1].Shape[1]
	var y []float64
	for i := range c.In[1].Shape[0] * heads {
		y = append(append(y, shared[i/heads*r:(i/heads+1)*r]...), each[i*n:(i+1)*n]...)
	}
	store(c.Out[0], y)
}

// joinHeadsBwd takes the cotangent apart again; that of the shared numbers is the sum over the heads.
func joinHeadsBwd(c *kernels.Call) {
	dy, r, n := load(c.In[0]), lastDim(c.Out[0]), lastDim(c.Out[1])
	heads := c.In[0].Shape[1]
	shared, each := make([]float64, c.Out[0].Len()), make([]float64, 0, c.Out[1].Len())
	for i := range c.In[0].Shape[0] * heads {
		row := dy[i*(r+n) : (i+1)*(r+n)]
		axpy(shared[i/heads*r:(i/heads+1)*r], 1, row[:r])
		each = append(each, row[r:]...)
	}
	store(c.Out[0], shared)
	store(c.Out[1], each)
}
