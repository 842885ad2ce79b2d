package ref

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

// The operations that vision encoders add.
func init() {
	for op, f := range map[kernels.Op]func(*kernels.Call){
		kernels.LayerNorm: layerNorm, kernels.LayerNormDX: layerNormDX, kernels.LayerNormDW: layerNormDW,
		kernels.Act: act, kernels.ActBwd: actBwd, kernels.Take: take, kernels.TakeBwd: takeBwd,
		kernels.ScaleRows: scaleRows, kernels.MulCols: mulCols, kernels.MulColsDW: mulColsDW,
		kernels.RopeAxes: ropeAxes,
		kernels.Turn:     turn, kernels.TurnDW: turnDW,
	} {
		table[op] = f
	}
}

// layerNorm sets y = (x − mean)·rstd·w + b over the last axis, and returns mean and rstd by row (arXiv:1607.06450).
func layerNorm(c *kernels.Call) {
	x, w, d := load(c.In[0]), load(c.In[1]), lastDim(c.In[0])
	b := make([]float64, d)
	if len(c.In) > 2 && c.In[2] != nil {
		b = load(c.In[2])
	}
	mean, rstd := make([]float64, c.In[0].Rows()), make([]float64, c.In[0].Rows())
	for i := range rstd {
		row := x[i*d : (i+1)*d]
		for _, v := range row {
			mean[i] += v / float64(d)
		}
		for j := range row {
			row[j] -= mean[i]
		}
		rstd[i] = 1 / math.Sqrt(dot(row, row)/float64(d)+c.Attr.F[0])
		for j := range row {
			row[j] = row[j]*rstd[i]*w[j] + b[j]
		}
	}
	store(c.Out[0], x)
	store(c.Out[1], mean)
	store(c.Out[2], rstd)
}

// layerNormDX sets dx = rstd·(g − mean(g) − x̂·mean(g·x̂)) with g = dy·w and x̂ the normed x.
func layerNormDX(c *kernels.Call) {
	dy, x, w, mean, rstd := load(c.In[0]), load(c.In[1]), load(c.In[2]), load(c.In[3]), load(c.In[4])
	d := len(w)
	for i, r := range rstd {
		g, z := dy[i*d:(i+1)*d], x[i*d:(i+1)*d]
		m1, m2 := 0.0, 0.0
		for j := range g {
			g[j] *= w[j]
			z[j] = (z[j] - mean[i]) * r
			m1 += g[j] / float64(d)
			m2 += g[j] * z[j] / float64(d)
		}
		for j := range g {
			g[j] = r * (g[j] - m1 - z[j]*m2)
		}
	}
	store(c.Out[0], dy)
}

// layerNormDW sets or adds dw = Σ dy·x̂.
func layerNormDW(c *kernels.Call) {
	dy, x, mean, rstd := load(c.In[0]), load(c.In[1]), load(c.In[2]), load(c.In[3])
	dw := make([]float64, lastDim(c.In[0]))
	for i := range dy {
		row := i / len(dw)
		dw[i%len(dw)] += dy[i] * (x[i] - mean[row]) * rstd[row]
	}
	storeOrAdd(c.Out[0], dw, c.Attr.I[0])
}

// activation gives f(x) and f'(x).
func activation(kind int, x float64) (y, dy float64) {
	switch kind {
	case kernels.GELU:
		phi := 0.5 * math.Erfc(-x/math.Sqrt2)
		return x * phi, phi + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
	case kernels.GELUTanh:
		k := math.Sqrt(2 / math.Pi)
		t := math.Tanh(k * (x + 0.044715*x*x*x))
		c := bounded(x)
		return 0.5 * x * (1 + t), 0.5*(1+t) + 0.5*c*(1-t*t)*k*(1+3*0.044715*c*c)
	case kernels.Tanh:
		t := math.Tanh(x)
		return t, 1 - t*t
	case kernels.Exp:
		return math.Exp(x), math.Exp(x)
	case kernels.Mish:
		t := math.Tanh(softplus(x))
		return x * t, t + x*sigmoid(x)*(1-t*t)
	case kernels.ReLU:
		if x < 0 {
			return 0, 0
		}
		if x == 0 {
			return x, 0
		}
		return x, 1
	}
	a := 1.0
	if kind == kernels.QuickGELU {
		a = 1.702
	}
	s := sigmoid(a * x)
	return x * s, s * (1 + a*bounded(x)*(1-s))
}

// bounded is x as far as a gate's slope knows it: beyond, the gate is 0 or 1, and so is what x makes of it.
func bounded(x float64) float64 { return min(max(x, -1e4), 1e4) }

// act sets y = f(x) for the activation that I[0] names.
func act(c *kernels.Call) {
	x := load(c.In[0])
	for i, v := range x {
		x[i], _ = activation(c.Attr.I[0], v)
	}
	store(c.Out[0], x)
}

// actBwd sets dx = dy·f′(x).
func actBwd(c *kernels.Call) {
	dy, x := load(c.In[0]), load(c.In[1])
	for i, v := range x {
		if c.Attr.I[0] == kernels.ReLU && v <= 0 { // as PyTorch: nothing passes, not even a NaN
			dy[i] = 0
			continue
		}
		_, d := activation(c.Attr.I[0], v)
		dy[i] *= d
	}
	store(c.Out[0], dy)
}

// take sets row i of y to row index[i] of x, and to zeros for a negative index.
func take(c *kernels.Call) {
	x, y, idx := load(c.In[0]), make([]float64, c.Out[0].Len()), c.In[1].I32()
	for i, j := range idx {
		if n := len(y) / len(idx); j >= 0 && int(j) < c.In[0].Shape[0] {
			copy(y[i*n:(i+1)*n], x[int(j)*n:])
		}
	}
	store(c.Out[0], y)
}

// takeBwd adds the rows of dy to the rows of dx that they came from, in order.
func takeBwd(c *kernels.Call) {
	dy, dx, idx := load(c.In[0]), make([]float64, c.Out[0].Len()), c.In[1].I32()
	for i, j := range idx {
		n := len(dy) / len(idx)
		if j < 0 || int(j) >= c.Out[0].Shape[0] {
			continue
		}
		for k := range n {
			dx[int(j)*n+k] += dy[i*n+k]
		}
	}
	store(c.Out[0], dx)
}

// scaleRows multiplies each row by a number of its own.
func scaleRows(c *kernels.Call) {
	x, s := load(c.In[0]), load(c.In[1])
	for i := range x {
		x[i] *= s[i/lastDim(c.In[0])]
	}
	store(c.Out[0], x)
}

// mulCols multiplies each column by a number of its own.
func mulCols(c *kernels.Call) {
	x, w := load(c.In[0]), load(c.In[1])
	for i := range x {
		x[i] *= w[i%len(w)]
	}
	store(c.Out[0], x)
}

// mulColsDW sets or adds the gradient of those numbers: Σ over rows of dy·x.
func mulColsDW(c *kernels.Call) {
	dy, x := load(c.In[0]), load(c.In[1])
	dw := make([]float64, lastDim(c.In[0]))
	for i := range dy {
		dw[i%len(dw)] += dy[i] * x[i]
	}
	storeOrAdd(c.Out[0], dw, c.Attr.I[0])
}

// ropeAxes sets cosines and sines of a head whose frequencies belong to axes: time, height and width.
func ropeAxes(c *kernels.Call) {
	pos, inv, axis := c.In[0].I32(), c.In[1].F32(), c.In[2].I32()
	cos, sin := make([]float64, c.Out[0].Len()), make([]float64, c.Out[0].Len())
	n, r := c.In[0].Shape[1], len(inv)
	for i := range c.In[0].Shape[0] {
		for j, f := range inv {
			s, q := math.Sincos(float64(float32(pos[i*n+int(axis[j])]) * f))
			cos[i*r+j], sin[i*r+j] = q*c.Attr.F[0], s*c.Attr.F[0]
		}
	}
	store(c.Out[0], cos)
	store(c.Out[1], sin)
}

// turn turns pairs of each head by trainable angles, in the rows that are marked; I[0] = −1 turns back.
func turn(c *kernels.Call) {
	x, angle, mark := load(c.In[0]), load(c.In[1]), c.In[2].I32()
	h, d, r := c.In[0].Shape[1], c.In[0].Shape[2], len(angle)
	for row := range len(mark) * h {
		if mark[row/h] == 0 {
			continue
		}
		v := x[row*d : (row+1)*d]
		for j, a := range angle {
			s, q := math.Sincos(a)
			s *= float64(c.Attr.I[0])
			v[j], v[j+r] = v[j]*q-v[j+r]*s, v[j+r]*q+v[j]*s
		}
	}
	store(c.Out[0], x)
}

// turnDW sets or adds the gradient of those angles.
func turnDW(c *kernels.Call) {
	dy, y, mark := load(c.In[0]), load(c.In[1]), c.In[2].I32()
	h, d, r := c.In[0].Shape[1], c.In[0].Shape[2], c.Out[0].Len()
	dw := make([]float64, r)
	for row := range len(mark) * h {
		if mark[row/h] == 0 {
			continue
		}
		for j := range dw {
			a := row*d + j
			dw[j] += dy[a+r]*y[a] - dy[a]*y[a+r]
		}
	}
	storeOrAdd(c.Out[0], dw, c.Attr.I[0])
}
