package ref

import "github.com/lfactor/lfactor/kernels"

// dot is Σ a[i]·b[i], in the order of i.
func dot(a, b []float64) float64 {
	s := 0.0
	for i, x := range a {
		s += x * b[i]
	}
	return s
}

// matNT is a[m,k] · b[n,k]ᵀ.
func matNT(a, b []float64, m, n, k int) []float64 {
	y := make([]float64, m*n)
	for i := range m {
		for j := range n {
			y[i*n+j] = dot(a[i*k:(i+1)*k], b[j*k:(j+1)*k])
		}
	}
	return y
}

// matNN is a[m,n] · b[n,k].
func matNN(a, b []float64, m, n, k int) []float64 {
	y := make([]float64, m*k)
	for i := range m {
		row := y[i*k : (i+1)*k]
		for j := range n {
			axpy(row, a[i*n+j], b[j*k:(j+1)*k])
		}
	}
	return y
}

// matTN is a[m,n]ᵀ · b[m,k].
func matTN(a, b []float64, m, n, k int) []float64 {
	y := make([]float64, n*k)
	for i := range m {
		for j := range n {
			axpy(y[j*k:(j+1)*k], a[i*n+j], b[i*k:(i+1)*k])
		}
	}
	return y
}

// axpy adds a·x to y.
func axpy(y []float64, a float64, x []float64) {
	for i := range y {
		y[i] += a * x[i]
	}
}

// linear sets y = x·wᵀ + b: x [rows k], w [n k], b [n] or none, y [rows n].
func linear(c *kernels.Call) {
	if kernels.Parts(c) > 1 {
		splitK(c, linear)
		return
	}
	x, w := c.In[0], c.In[1]
	n := w.Shape[0]
	y := matNT(load(x), load(w), x.Rows(), n, lastDim(x))
	if len(c.In) > 2 && c.In[2] != nil {
		bias := load(c.In[2])
		for i := range y {
			y[i] += bias[i%n]
		}
	}
	store(c.Out[0], y)
}

// linearDX sets dx = dy·w: dy [rows n], w [n k], dx [rows k].
func linearDX(c *kernels.Call) {
	dy, w := c.In[0], c.In[1]
	store(c.Out[0], matNN(load(dy), load(w), dy.Rows(), w.Shape[0], w.Shape[1]))
}

// linearDW sets or adds dw = dyᵀ·x: dy [rows n], x [rows k], dw [n k].
func linearDW(c *kernels.Call) {
	dy, x := c.In[0], c.In[1]
	storeOrAdd(c.Out[0], matTN(load(dy), load(x), x.Rows(), lastDim(dy), lastDim(x)), c.Attr.I[0])
}

// colSum sets or adds db[j] = Σ over rows of dy[i,j]: the gradient of a bias.
func colSum(c *kernels.Call) {
	dy := c.In[0]
	n := lastDim(dy)
	db := make([]float64, n)
	for i, x := range load(dy) {
		db[i%n] += x
	}
	storeOrAdd(c.Out[0], db, c.Attr.I[0])
}

// embed sets row i of y to row id[i] − I[0] of the table w, and to zeros where the table has no such row: a
// part of a vocabulary begins at I[0].
func embed(c *kernels.Call) {
	w := c.In[1]
	d := w.Shape[1]
	v, y := load(w), make([]float64, c.Out[0].Len())
	for i, id := range c.In[0].I32() {
		if r := int(id) - c.Attr.I[0]; r >= 0 && r < w.Shape[0] {
			copy(y[i*d:(i+1)*d], v[r*d:])
		}
	}
	store(c.Out[0], y)
}

// embedDW sets or adds the rows of dy to the rows of dw that their ids name, in the order of the rows.
func embedDW(c *kernels.Call) {
	dw := c.Out[0]
	d, dy, y := dw.Shape[1], load(c.In[0]), make([]float64, dw.Len())
	for i, id := range c.In[1].I32() {
		if r := int(id) - c.Attr.I[1]; r >= 0 && r < dw.Shape[0] {
			axpy(y[r*d:(r+1)*d], 1, dy[i*d:])
		}
	}
	storeOrAdd(dw, y, c.Attr.I[0])
}
