package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// squaresBlock is the length of the blocks whose sums sum_squares adds in order.
const squaresBlock = 4096

// sumSquares is the squared norm in float64. Blocks have a fixed length and are added in order, so
// that the threads do not matter.
func sumSquares(b *Backend, c *kernels.Call) {
	x, y := c.In[0].F32(), c.Out[0].F64()
	n := ceilDiv(len(x), squaresBlock)
	parts := make([]float64, n)
	b.rows(n, squaresBlock, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			parts[i] = w.k.sumSquares(x[i*squaresBlock : min((i+1)*squaresBlock, len(x))])
		}
	})
	s := 0.0
	for _, p := range parts {
		s += p
	}
	if c.Attr.I[0] == kernels.Accumulate {
		s += y[0]
	}
	y[0] = s
}

// adamW updates master weights and moments, and writes the model's copy in its own type. An
// overflow of the gradients leaves everything as it is.
func adamW(b *Backend, c *kernels.Call) {
	h, clip := c.In[1].F64(), c.In[2].F64()
	if clip[kernels.ClipOverflow] == 1 {
		return
	}
	decay := h[kernels.HyperDecay]
	if c.Attr.I[0] == 1 {
		decay = 0
	}
	k := &adamConst{
		factor: float32(clip[kernels.ClipFactor]), keep: float32(1 - h[kernels.HyperLR]*decay),
		beta2: float32(h[kernels.HyperBeta2]),
		m1:    float32(1 - h[kernels.HyperBeta1]), m2: float32(1 - h[kernels.HyperBeta2]),
		step: float32(h[kernels.HyperLR] / h[kernels.HyperCorrection1]), eps: float32(h[kernels.HyperEps]),
		rootInv: float32(1 / math.Sqrt(h[kernels.HyperCorrection2])),
	}
	g, p, m, v := c.In[0].F32(), c.Out[0].F32(), viewOf(c.Out[1]), viewOf(c.Out[2])
	q := modelCopy(c, 3)
	b.elements(len(g), func(w *worker, at, n int) {
		first, second := w.in(m, at, n), w.in(v, at, n)
		w.k.adamW(p[at:at+n], first, second, g[at:at+n], k)
		if m.d != tensor.F32 {
			for i := range first { // moments in bf16
				noise := kernels.HyperNoise(h, at+i)
				m.h[at+i] = kernels.StochasticRound16(first[i], noise)
				v.h[at+i] = kernels.StochasticRound16(second[i], noise>>16)
			}
		}
		if q != nil {
			w.k.write(*q, at, p[at:at+n])
		}
	})
}

// adamW8 keeps moments in eight bits, and writes the model's copy in its own type.
func adamW8(b *Backend, c *kernels.Call) {
	k, ok := kernels.AdamW8Scalars(c)
	blocks := c.Out[3].Len()
	if !ok || blocks == 0 {
		return
	}
	n, p, q := c.In[0].Len()/blocks, c.Out[0].F32(), modelCopy(c, 5)
	b.rows(blocks, n, func(w *worker, from, to int) {
		mark := w.arena.mark()
		room := w.arena.f32(2 * n)
		for i := from; i < to; i++ {
			if kernels.AdamW8Block(c, &k, i, room); q != nil {
				w.k.write(*q, i*n, p[i*n:(i+1)*n])
			}
		}
		w.arena.release(mark)
	})
}

// sgd updates master weights and momentum, and writes the model's copy in its own type.
func sgd(b *Backend, c *kernels.Call) {
	h, clip := c.In[1].F64(), c.In[2].F64()
	if clip[kernels.ClipOverflow] == 1 {
		return
	}
	k := &sgdConst{factor: float32(clip[kernels.ClipFactor]), decay: float32(h[kernels.HyperDecay]),
		momentum: float32(h[kernels.HyperBeta1]), lr: float32(h[kernels.HyperLR])}
	if c.Attr.I[0] == 1 {
		k.decay = 0
	}
	g, p, m := c.In[0].F32(), c.Out[0].F32(), c.Out[1].F32()
	q := modelCopy(c, 2)
	b.elements(len(g), func(w *worker, at, n int) {
		w.k.sgd(p[at:at+n], m[at:at+n], g[at:at+n], k)
		if q != nil {
			w.k.write(*q, at, p[at:at+n])
		}
	})
}

// lion moves by the sign of a momentum. An overflow of the gradients leaves everything as it is.
func lion(b *Backend, c *kernels.Call) {
	h, clip := c.In[1].F64(), c.In[2].F64()
	if clip[kernels.ClipOverflow] == 1 {
		return
	}
	factor, lr := float32(clip[kernels.ClipFactor]), float32(h[kernels.HyperLR])
	b1, b2 := float32(h[kernels.HyperBeta1]), float32(h[kernels.HyperBeta2])
	r1, r2 := float32(1-h[kernels.HyperBeta1]), float32(1-h[kernels.HyperBeta2])
	keep := float32(1 - h[kernels.HyperLR]*h[kernels.HyperDecay])
	if c.Attr.I[0] == 1 {
		keep = 1
	}
	g, p, m := c.In[0].F32(), c.Out[0].F32(), c.Out[1].F32()
	q := modelCopy(c, 2)
	b.elements(len(g), func(w *worker, at, n int) {
		for i := at; i < at+n; i++ {
			x := float32(g[i] * factor)
			by := float32(b1*m[i]) + float32(r1*x)
			p[i] = float32(p[i] * keep)
			switch {
			case by > 0:
				p[i] -= lr
			case by < 0:
				p[i] += lr
			case by != by: // a NaN of a NaN
				p[i] = by
			}
			m[i] = float32(b2*m[i]) + float32(r2*x)
		}
		if q != nil {
			w.k.write(*q, at, p[at:at+n])
		}
	})
}

// average moves an average of weights towards them.
func average(b *Backend, c *kernels.Call) {
	if c.In[2].F64()[kernels.ClipOverflow] == 1 {
		return
	}
	by := float32(c.In[1].F64()[kernels.HyperAverage])
	p, s := c.In[0].F32(), c.Out[0].F32()
	b.elements(len(p), func(_ *worker, at, n int) {
		for i := at; i < at+n; i++ {
			s[i] -= float32(by * (s[i] - p[i]))
		}
	})
}

// modelCopy is the operand for parameters in the model's dtype, if the call has one.
func modelCopy(c *kernels.Call, i int) *view {
	if len(c.Out) <= i || c.Out[i] == nil {
		return nil
	}
	v := viewOf(c.Out[i])
	return &v
}
