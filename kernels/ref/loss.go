package ref

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func linearLSE(c *kernels.Call) {
	x, w := c.In[0], c.In[1]
	t, v, d := x.Rows(), w.Shape[0], last(x)
	xs, ws, target := load(x), load(w), c.In[2].I32()
	lse, hit := make([]float64, t), make([]float64, t)
	for i := range t {
		z := matNT(xs[i*d:(i+1)*d], ws, 1, v, d)
		lse[i] = logSumExp(z)
		if r := int(target[i]) - c.Attr.I[0]; r >= 0 && r < v {
			hit[i] = z[r]
		}
	}
	store(c.Out[0], lse)
	store(c.Out[1], hit)
}

func lseJoin(c *kernels.Call) {
	l, n := load(c.In[0]), last(c.In[0])
	y := make([]float64, c.Out[0].Len())
	for i := range y {
		y[i] = logSumExp(l[i*n : (i+1)*n])
	}
	store(c.Out[0], y)
}

func nll(c *kernels.Call) {
	lse, hit, target, weight := load(c.In[0]), load(c.In[1]), c.In[2].I32(), load(c.In[3])
	s := 0.0
	for i := range lse {
		if target[i] >= 0 {
			s += weight[i] * (lse[i] - hit[i])
		}
	}
	store(c.Out[0], []float64{s})
}

// gradLogits is row i of dz.
func gradLogits(x, w []float64, i, v, d int, target int32, base int, lse, scale float64) []float64 {
	if target < 0 {
		return make([]float64, v)
	}
	z := matNT(x[i*d:(i+1)*d], w, 1, v, d)
	for j := range z {
		z[j] = scale * math.Exp(z[j]-lse)
	}
	if r := int(target) - base; r >= 0 && r < v {
		z[r] -= scale
	}
	return z
}

// linearCE is linear_ce_dx, linear_ce_dw and linear_ce_bwd: the outputs tell which gradients are wanted.
func linearCE(c *kernels.Call) {
	var dx, dw *tensor.Tensor
	switch c.Op {
	case kernels.LinearCEDX:
		dx = c.Out[0]
	case kernels.LinearCEDW:
		dw = c.Out[0]
	default:
		dx, dw = c.Out[0], c.Out[1]
	}
	x, w := load(c.In[0]), load(c.In[1])
	v, d := c.In[1].Shape[0], c.In[1].Shape[1]
	target, lse, weight, seed := c.In[2].I32(), load(c.In[3]), load(c.In[4]), load(c.In[5])[0]
	gx, gw := make([]float64, len(x)), make([]float64, len(w))
	for i := range target {
		dz := gradLogits(x, w, i, v, d, target[i], c.Attr.I[0], lse[i], seed*weight[i])
		for j, g := range dz {
			if dx != nil {
				axpy(gx[i*d:(i+1)*d], g, w[j*d:])
			}
			if dw != nil {
				axpy(gw[j*d:(j+1)*d], g, x[i*d:])
			}
		}
	}
	if dx != nil {
		store(dx, gx)
	}
	if dw != nil {
		storeOrAdd(dw, gw, c.Attr.I[1])
	}
}
