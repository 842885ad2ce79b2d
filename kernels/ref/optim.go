package ref

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
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

// adamW updates p, m and v in place (arXiv:1711.05101): decay first, then the step from moments corrected by the
// factors that hyper holds. Gradients are multiplied by the clip factor; if any rank saw an overflow, nothing changes.
func adamW(c *kernels.Call) { adamWOf(c, store) }

// adamWNarrow keeps moments in bf16.
func adamWNarrow(c *kernels.Call) {
	h, half := c.In[1].F64(), 0
	adamWOf(c, func(t *tensor.Tensor, v []float64) {
		for i, x := range v {
			t.U16()[i] = kernels.StochasticRound16(float32(x), kernels.HyperNoise(h, i)>>half)
		}
		half = 16
	})
}

// adamW8 keeps moments in eight bits.
func adamW8(c *kernels.Call) {
	k, ok := kernels.AdamW8Scalars(c)
	n := c.Out[3].Len()
	if !ok || n == 0 {
		return
	}
	room := make([]float32, 2*c.In[0].Len()/n)
	for i := range n {
		kernels.AdamW8Block(c, &k, i, room)
	}
	storeModel(c, 5)
}

func adamWOf(c *kernels.Call, keep func(t *tensor.Tensor, v []float64)) {
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
		p[i] -= h[kernels.HyperLR] / h[kernels.HyperCorrection1] * m[i] / (math.Sqrt(v[i])/root + h[kernels.HyperEps])
	}
	store(c.Out[0], p)
	keep(c.Out[1], m)
	keep(c.Out[2], v)
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

// scheduleFree moves z by the gradient, x to the average of all z, and p between them.
func scheduleFree(c *kernels.Call) {
	h, clip := c.In[1].F64(), c.In[2].F64()
	if clip[kernels.ClipOverflow] == 1 {
		return
	}
	decay, share, b1, b2 := h[kernels.HyperDecay], h[kernels.HyperAverage], h[kernels.HyperBeta1], h[kernels.HyperBeta2]
	if c.Attr.I[0] == 1 {
		decay = 0
	}
	g, p, z, v, x := load(c.In[0]), load(c.Out[0]), load(c.Out[1]), load(c.Out[2]), load(c.Out[3])
	for i := range g {
		if h[kernels.HyperCorrection1] == 1 {
			z[i], x[i] = p[i], p[i]
		}
		d := g[i] * clip[kernels.ClipFactor]
		v[i] = b2*v[i] + (1-b2)*d*d
		z[i] -= h[kernels.HyperLR] * (d/(math.Sqrt(v[i]/h[kernels.HyperCorrection2])+h[kernels.HyperEps]) + decay*p[i])
		x[i] += share * (z[i] - x[i])
		p[i] = (1-b1)*z[i] + b1*x[i]
	}
	for i, y := range [][]float64{p, z, v, x} {
		store(c.Out[i], y)
	}
	storeModel(c, 4)
}

// muonMomentum moves m towards the gradient, and gives the direction that is orthogonalized.
func muonMomentum(c *kernels.Call) {
	h, clip := c.In[1].F64(), c.In[2].F64()
	g, m := load(c.In[0]), load(c.Out[1])
	u := make([]float64, len(g))
	if clip[kernels.ClipOverflow] == 1 {
		store(c.Out[0], u)
		return
	}
	beta := h[kernels.HyperBeta1]
	for i := range g {
		x := g[i] * clip[kernels.ClipFactor]
		m[i] += (1 - beta) * (x - m[i])
		if u[i] = m[i]; c.Attr.I[0] == 0 {
			u[i] = x + beta*(m[i]-x)
		}
	}
	store(c.Out[0], u)
	store(c.Out[1], m)
}

// muonStep moves p against a direction.
func muonStep(c *kernels.Call) {
	h := c.In[1].F64()
	if c.In[2].F64()[kernels.ClipOverflow] == 1 {
		return
	}
	decay := h[kernels.HyperDecay]
	if c.Attr.I[0] == 1 {
		decay = 0
	}
	u, p := load(c.In[0]), load(c.Out[0])
	for i := range u {
		p[i] -= h[kernels.HyperLR] * decay * p[i]
		p[i] -= h[kernels.HyperLR] * h[kernels.HyperScale] * u[i]
	}
	store(c.Out[0], p)
	storeModel(c, 1)
}

// orthogonalize brings the singular values of each matrix to about 1.
func orthogonalize(c *kernels.Call) {
	x, shape := load(c.In[0]), c.In[0].Shape
	n, k := shape[len(shape)-2], shape[len(shape)-1]
	for at := 0; at+n*k <= len(x) && n*k > 0; at += n * k {
		orthogonalOne(x[at:at+n*k], n, k, c.Attr.I[0])
	}
	store(c.Out[0], x)
}

func orthogonalOne(x []float64, n, k, steps int) {
	rows, columns := min(n, k), max(n, k)
	at := func(i, j int) int { // of the matrix that is not higher than wide
		if n > k {
			return j*k + i
		}
		return i*k + j
	}
	norm := max(math.Sqrt(dot(x, x)), kernels.OrthogonalLeast)
	for i := range x {
		x[i] /= norm
	}
	gram, poly, next := make([]float64, rows*rows), make([]float64, rows*rows), make([]float64, len(x))
	for range steps {
		for i := range rows {
			for j := range rows {
				s := 0.0
				for p := range columns {
					s += x[at(i, p)] * x[at(j, p)]
				}
				gram[i*rows+j] = s
			}
		}
		for i := range rows {
			for j := range rows {
				poly[i*rows+j] = kernels.OrthogonalB*gram[i*rows+j] +
					kernels.OrthogonalC*dot(gram[i*rows:(i+1)*rows], gram[j*rows:(j+1)*rows])
			}
		}
		for i := range rows {
			for j := range columns {
				s := kernels.OrthogonalA * x[at(i, j)]
				for p := range rows {
					s += poly[i*rows+p] * x[at(p, j)]
				}
				next[at(i, j)] = s
			}
		}
		copy(x, next)
	}
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
