package ref

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.PackedLinear] = packed(linear, func(c *kernels.Call) int { return lastDim(c.In[0]) })
	table[kernels.PackedGrouped] = packed(groupedLinear, func(c *kernels.Call) int { return lastDim(c.In[0]) })
	table[kernels.PackedGroupedDX] = packed(groupedLinearDX, func(c *kernels.Call) int { return lastDim(c.Out[0]) })
	table[kernels.PackedLinearDX] = packed(linearDX, func(c *kernels.Call) int { return lastDim(c.Out[0]) })
}

// packed is a product with a second operand that is unpacked first; width is that of its rows.
func packed(product func(c *kernels.Call), width func(c *kernels.Call) int) func(c *kernels.Call) {
	return func(c *kernels.Call) {
		p, w, k := kernels.PackingAt(c.Attr), c.In[1], width(c)
		n, row := w.Rows(), 4*lastDim(w)
		shape := append([]int(nil), w.Shape...)
		shape[len(shape)-1] = k
		whole := tensor.Make(c.In[0].DType, shape...)
		v, raw := make([]float64, n*k), w.Bytes()
		for i := range n {
			numbers := make([]float32, k)
			p.Decode(numbers, raw[i*row:(i+1)*row], k, 0)
			for j, x := range numbers {
				v[i*k+j] = float64(x)
			}
		}
		store(whole, v)
		of := *c
		of.In = append([]*tensor.Tensor{c.In[0], whole}, c.In[2:]...)
		product(&of)
	}
}
