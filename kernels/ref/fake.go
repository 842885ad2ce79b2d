package ref

import "github.com/lfactor/lfactor/kernels"

func init() { table[kernels.FakeQuant], table[kernels.FakeQuantDW] = fakeQuant, fakeQuantDW }

func fakeQuant(c *kernels.Call) {
	f, w, k := kernels.FakeAt(c.Attr), load(c.In[0]), lastDim(c.In[0])
	row := make([]float32, k)
	for i := range c.In[0].Rows() {
		for j := range row {
			row[j] = float32(w[i*k+j])
		}
		f.Row(row, row)
		for j, x := range row {
			w[i*k+j] = float64(x)
		}
	}
	store(c.Out[0], w)
}

func fakeQuantDW(c *kernels.Call) {
	f, w, k := kernels.FakeAt(c.Attr), load(c.In[1]), lastDim(c.In[0])
	dy, dw, row := c.In[0].F32(), c.Out[0].F32(), make([]float32, k)
	for i := range c.In[0].Rows() {
		for j := range row {
			row[j] = float32(w[i*k+j])
		}
		f.Gradient(dw[i*k:(i+1)*k], dy[i*k:(i+1)*k], row)
	}
}
