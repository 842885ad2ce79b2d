package ref

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// splitK is a product whose sums are taken in parts, each by f, which are added up.
func splitK(c *kernels.Call, f func(*kernels.Call)) {
	k := lastDim(c.In[1]) / kernels.Parts(c)
	var parts []*tensor.Tensor
	for i, to := kernels.PartsOf(c); i < to; i++ {
		one := *c
		one.In = append([]*tensor.Tensor{columns(c.In[0], i*k, k), columns(c.In[1], i*k, k)}, c.In[2:]...)
		one.Attr.I[2], one.Attr.I[3] = 0, 0
		if c.Op == kernels.Linear && i > 0 {
			one.In = one.In[:2]
		}
		one.Out = []*tensor.Tensor{tensor.Make(c.Out[0].DType, c.Out[0].Shape...)}
		f(&one)
		parts = append(parts, one.Out[0])
	}
	sum(&kernels.Call{In: parts, Out: c.Out})
}

// columns are n of the last axis of t, from one on.
func columns(t *tensor.Tensor, from, n int) *tensor.Tensor {
	shape := append([]int(nil), t.Shape...)
	shape[len(shape)-1] = n
	out := tensor.Make(t.DType, shape...)
	all, size := lastDim(t)*t.DType.Size(), n*t.DType.Size()
	for i := 0; size > 0 && i < out.Len()/n; i++ {
		copy(out.Bytes()[i*size:(i+1)*size], t.Bytes()[i*all+from*t.DType.Size():])
	}
	return out
}
