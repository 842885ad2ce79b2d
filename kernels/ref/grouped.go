package ref

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.GroupedLinear], table[kernels.GroupedLinearDX],
		table[kernels.GroupedLinearDW] = groupedLinear, groupedLinearDX, groupedLinearDW
}

// groupsOf are the rows of each group of x: between offsets, or without them a row of each token.
func groupsOf(c *kernels.Call, x *tensor.Tensor, groups int) (rows [][]int) {
	if len(c.In) > 2 && c.In[2] != nil {
		eachGroup(c.In[2].I32(), func(_, from, to int) { rows = append(rows, upTo(from, to)) })
		return rows
	}
	for g := range groups {
		var own []int
		for i := g; i < x.Rows(); i += groups {
			own = append(own, i)
		}
		rows = append(rows, own)
	}
	return rows
}

// upTo lists from … to−1.
func upTo(from, to int) (l []int) {
	for i := from; i < to; i++ {
		l = append(l, i)
	}
	return l
}

// pickRows are rows of a matrix of that width; putRows writes them.
func pickRows(x []float64, rows []int, width int) (y []float64) {
	for _, i := range rows {
		y = append(y, x[i*width:(i+1)*width]...)
	}
	return y
}

// putRows writes the rows of x to the places that rows names.
func putRows(y []float64, rows []int, width int, x []float64) {
	for at, i := range rows {
		copy(y[i*width:(i+1)*width], x[at*width:])
	}
}

// eachGroup calls f with the rows of every group.
func eachGroup(off []int32, f func(g, from, to int)) {
	for g := range len(off) - 1 {
		f(g, int(off[g]), int(off[g+1]))
	}
}

// groupedLinear sets y = x·w_gᵀ for the rows of each group g: w [groups n k].
func groupedLinear(c *kernels.Call) {
	if kernels.Parts(c) > 1 {
		splitK(c, groupedLinear)
		return
	}
	x, w, y := load(c.In[0]), load(c.In[1]), make([]float64, c.Out[0].Len())
	n, k := c.In[1].Shape[1], c.In[1].Shape[2]
	for g, rows := range groupsOf(c, c.In[0], c.In[1].Shape[0]) {
		putRows(y, rows, n, matNT(pickRows(x, rows, k), w[g*n*k:], len(rows), n, k))
	}
	store(c.Out[0], y)
}

// groupedLinearDX sets dx = dy·w_g for the rows of each group.
func groupedLinearDX(c *kernels.Call) {
	dy, w, dx := load(c.In[0]), load(c.In[1]), make([]float64, c.Out[0].Len())
	n, k := c.In[1].Shape[1], c.In[1].Shape[2]
	for g, rows := range groupsOf(c, c.In[0], c.In[1].Shape[0]) {
		putRows(dx, rows, k, matNN(pickRows(dy, rows, n), w[g*n*k:], len(rows), n, k))
	}
	store(c.Out[0], dx)
}

// groupedLinearDW sets or adds dw_g = dy_gᵀ·x_g, the sum over the rows of group g.
func groupedLinearDW(c *kernels.Call) {
	dy, x, dw := load(c.In[0]), load(c.In[1]), make([]float64, c.Out[0].Len())
	n, k := c.Out[0].Shape[1], c.Out[0].Shape[2]
	for g, rows := range groupsOf(c, c.In[0], c.Out[0].Shape[0]) {
		copy(dw[g*n*k:], matTN(pickRows(dy, rows, n), pickRows(x, rows, k), len(rows), n, k))
	}
	storeOrAdd(c.Out[0], dw, c.Attr.I[0])
}
