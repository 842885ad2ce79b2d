package ref

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

// sumSquares sets or adds Σ x², in blocks of 4096 whose sums are added in order.
func sumSquares(c *kernels.Call) {
	x, s := load(c.In[0]), 0.0
	for i := 0; i < len(x); i += 4096 {
		b := x[i:min(i+4096, len(x))]
		s += dot(b, b)
	}
	storeOrAdd(c.Out[0], []float64{s}, c.Attr.I[0])
}

// adamW updates p, m and v in place (arXiv:1711.05101): decay first, then the step from moments corrected
// by the factors that hyper holds. Gradients are multiplied by the clip factor; if any rank saw an
// overflow, nothing changes.
func adamW(c *kernels.Call) {
	h, clip := c.In[1].F64(), c.In[2].F64()
	if clip[kernels.ClipOverflow] == 1 {
		return
	}
	g, p, m, v := load(c.In[0]), load(c.Out[0]), load(c.Out[1]), load(c.Out[2])
	decay := h[kernels.HyperLR] * h[kernels.HyperDecay]
	if c.Attr.I[0] == 1 {
		decay = 0
	}
	root := math.Sqrt(h[kernels.HyperCorrection2])
	for i := range g {
		x := g[i] * clip[kernels.ClipFactor]
		p[i] -= decay * p[i]
		m[i] += (1 - h[kernels.HyperBeta1]) * (x - m[i])
		v[i] = h[kernels.HyperBeta2]*v[i] + (1-h[kernels.HyperBeta2])*x*x
		p[i] -= h[kernels.HyperLR] / h[kernels.HyperCorrection1] * m[i] / (math.Sqrt(v[i])/root +
			h[kernels.HyperEps])
	}
	for i, x := range [][]float64{p, m, v} {
		store(c.Out[i], x)
	}
	storeModel(c, 3)
}

// sgd updates p and m in place: m = β·m + g·clip + decay·p, p −= lr·m.
func sgd(c *kernels.Call) {
	h, clip := c.In[1].F64(), c.In[2].F64()
	if clip[kernels.ClipOverflow] == 1 {
		return
	}
	decay := h[kernels.HyperDecay]
	if c.Attr.I[0] == 1 {
		decay = 0
	}
	g, p, m := load(c.In[0]), load(c.Out[0]), load(c.Out[1])
	for i := range g {
		m[i] = h[kernels.HyperBeta1]*m[i] + g[i]*clip[kernels.ClipFactor] + decay*p[i]
		p[i] -= h[kernels.HyperLR] * m[i]
	}
	store(c.Out[0], p)
	store(c.Out[1], m)
	storeModel(c, 2)
}

func lion(c *kernels.Call) {
	h, clip := c.In[1].F64(), c.In[2].F64()
	if clip[kernels.ClipOverflow] == 1 {
		return
	}
	decay, b1, b2 := h[kernels.HyperDecay], h[kernels.HyperBeta1], h[kernels.HyperBeta2]
	if c.Attr.I[0] == 1 {
		decay = 0
	}
	g, p, m := load(c.In[0]), load(c.Out[0]), load(c.Out[1])
	for i := range g {
		x := g[i] * clip[kernels.ClipFactor]
		p[i] -= h[kernels.HyperLR] * (sign(b1*m[i]+(1-b1)*x) + decay*p[i])
		m[i] = b2*m[i] + (1-b2)*x
	}
	store(c.Out[0], p)
	store(c.Out[1], m)
	storeModel(c, 2)
}

func average(c *kernels.Call) {
	if c.In[2].F64()[kernels.ClipOverflow] == 1 {
		return
	}
	by, p, s := c.In[1].F64()[kernels.HyperAverage], load(c.In[0]), load(c.Out[0])
	for i := range s {
		s[i] -= by * (s[i] - p[i])
	}
	store(c.Out[0], s)
}

// storeModel rounds the updated float32 parameters to the model's dtype if the call has an operand for them.
func storeModel(c *kernels.Call, i int) {
	if len(c.Out) > i && c.Out[i] != nil {
		store(c.Out[i], load(c.Out[0]))
	}
}
