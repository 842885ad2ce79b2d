package ref

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

// rmsNorm sets y = x·rstd·(w + F[1]) with rstd = 1/√(mean(x²) + F[0]) over the last axis, and returns rstd
// by row (arXiv:1910.07467). F[1] is 1 for families whose weights are kept as their distance from 1.
func rmsNorm(c *kernels.Call) {
	x, w, d := load(c.In[0]), load(c.In[1]), lastDim(c.In[0])
	rstd := make([]float64, c.In[0].Rows())
	for i := range rstd {
		row := x[i*d : (i+1)*d]
		rstd[i] = 1 / math.Sqrt(dot(row, row)/float64(d)+c.Attr.F[0])
		for j := range row {
			row[j] *= rstd[i] * (w[j] + c.Attr.F[1])
		}
	}
	store(c.Out[0], x)
	store(c.Out[1], rstd)
}

// rmsNormDX sets dx = rstd·(g − x·rstd²·mean(g·x)) with g = dy·(w + F[1]).
func rmsNormDX(c *kernels.Call) {
	dy, x, w, rstd := load(c.In[0]), load(c.In[1]), load(c.In[2]), load(c.In[3])
	d := len(w)
	for i, r := range rstd {
		g, row := dy[i*d:(i+1)*d], x[i*d:(i+1)*d]
		for j := range g {
			g[j] *= w[j] + c.Attr.F[1]
		}
		k := r * r * dot(g, row) / float64(d)
		for j := range g {
			g[j] = r * (g[j] - row[j]*k)
		}
	}
	store(c.Out[0], dy)
}

// rmsNormDW sets or adds dw[j] = Σ over rows of dy·x·rstd.
func rmsNormDW(c *kernels.Call) {
	dy, x, rstd := load(c.In[0]), load(c.In[1]), load(c.In[2])
	dw := make([]float64, lastDim(c.In[0]))
	for i := range dy {
		dw[i%len(dw)] += dy[i] * x[i] * rstd[i/len(dw)]
	}
	storeOrAdd(c.Out[0], dw, c.Attr.I[0])
}

// ropeTable sets the cosines and sines of position × inverse frequency, each times F[0] (arXiv:2104.09864).
// The angle is rounded to float32, as in transformers.
func ropeTable(c *kernels.Call) {
	pos, inv := c.In[0].I32(), c.In[1].F32()
	cos, sin := make([]float64, c.Out[0].Len()), make([]float64, c.Out[0].Len())
	for i, p := range pos {
		for j, f := range inv {
			s, q := math.Sincos(float64(float32(p) * f))
			cos[i*len(inv)+j], sin[i*len(inv)+j] = q*c.Attr.F[0], s*c.Attr.F[0]
		}
	}
	store(c.Out[0], cos)
	store(c.Out[1], sin)
}

// rope turns pairs of a head by the angles of the table, backwards if I[0] is −1: numbers i and i+r of the
// first 2r, or neighbours if I[1] is 1. Numbers behind them stay.
func rope(c *kernels.Call) {
	x, cos, sin := load(c.In[0]), load(c.In[1]), load(c.In[2])
	h, d, r := c.In[0].Shape[1], c.In[0].Shape[2], lastDim(c.In[1])
	for row := range c.In[0].Shape[0] * h {
		v := x[row*d : (row+1)*d]
		for i := range r {
			a, b := i, i+r
			if c.Attr.I[1] == 1 {
				a, b = 2*i, 2*i+1
			}
			q, s := cos[row/h*r+i], sin[row/h*r+i]*float64(c.Attr.I[0])
			v[a], v[b] = v[a]*q-v[b]*s, v[b]*q+v[a]*s
		}
	}
	store(c.Out[0], x)
}

// sigmoid is 1/(1 + exp(−x)).
func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// swiglu sets y = g·sigmoid(g)·u (arXiv:2002.05202).
func swiglu(c *kernels.Call) {
	g, u := load(c.In[0]), load(c.In[1])
	for i, x := range g {
		g[i] = x * sigmoid(x) * u[i]
	}
	store(c.Out[0], g)
}

// swigluBwd sets dg = dy·u·s·(1 + g·(1−s)) and du = dy·g·s, s being sigmoid(g).
func swigluBwd(c *kernels.Call) {
	dy, g, u := load(c.In[0]), load(c.In[1]), load(c.In[2])
	for i, x := range g {
		s := sigmoid(x)
		g[i], u[i] = dy[i]*u[i]*s*(1+x*(1-s)), dy[i]*x*s
	}
	store(c.Out[0], g)
	store(c.Out[1], u)
}
