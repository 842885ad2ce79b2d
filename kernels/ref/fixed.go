package ref

import "github.com/lfactor/lfactor/kernels"

func init() {
	table[kernels.FixedAdd] = fixedAdd
	table[kernels.FixedSum] = func(c *kernels.Call) { kernels.StoreFixedSum(c, 0, c.Out[0].Len()) }
	table[kernels.FixedRead] = func(c *kernels.Call) { kernels.StoreFixedRead(c, 0, c.Out[0].Len()) }
	table[kernels.FixedSquares] = func(c *kernels.Call) {
		kernels.StoreFixedSquares(c, func(row []float32) (s float64) {
			for _, x := range row {
				s += float64(x) * float64(x)
			}
			return s
		})
	}
}

// fixedAdd adds numbers to sums in fixed point.
func fixedAdd(c *kernels.Call) {
	x := make([]float32, c.In[0].Len())
	for i, v := range load(c.In[0]) {
		x[i] = float32(v)
	}
	if !kernels.Fixed(c.Out[0].I64(), x, c.Attr.F[0], c.Attr.I[0] == kernels.Accumulate) {
		c.Out[1].I64()[0]++
	}
}
