package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

// scheduleFree moves z by the gradient, x to the average of all z, and p between them.
func scheduleFree(b *Backend, c *kernels.Call) {
	h, clip := c.In[1].F64(), c.In[2].F64()
	if clip[kernels.ClipOverflow] == 1 {
		return
	}
	decay := float32(h[kernels.HyperDecay])
	if c.Attr.I[0] == 1 {
		decay = 0
	}
	factor, lr, eps := float32(clip[kernels.ClipFactor]), float32(h[kernels.HyperLR]), float32(h[kernels.HyperEps])
	beta1, rest1 := float32(h[kernels.HyperBeta1]), float32(1-h[kernels.HyperBeta1])
	beta2, rest2 := float32(h[kernels.HyperBeta2]), float32(1-h[kernels.HyperBeta2])
	rootInv, share := float32(1/math.Sqrt(h[kernels.HyperCorrection2])), float32(h[kernels.HyperAverage])
	g, p, z, v, x := c.In[0].F32(), c.Out[0].F32(), c.Out[1].F32(), c.Out[2].F32(), c.Out[3].F32()
	q, first := modelCopy(c, 4), h[kernels.HyperCorrection1] == 1
	b.elements(len(g), func(w *worker, at, n int) {
		if first {
			copy(z[at:at+n], p[at:at+n])
			copy(x[at:at+n], p[at:at+n])
		}
		for i := at; i < at+n; i++ {
			d := float32(g[i] * factor)
			v[i] = float32(beta2*v[i]) + float32(float32(rest2*d)*d)
			u := d / (float32(float32(math.Sqrt(float64(v[i])))*rootInv) + eps)
			z[i] -= float32(lr * (u + float32(decay*p[i])))
			x[i] += float32(share * (z[i] - x[i]))
			p[i] = float32(rest1*z[i]) + float32(beta1*x[i])
		}
		if q != nil {
			w.k.write(*q, at, p[at:at+n])
		}
	})
}
