package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	for op, f := range map[kernels.Op]func(*Backend, *kernels.Call){
		kernels.LayerNorm: layerNorm, kernels.LayerNormDX: layerNormDX, kernels.LayerNormDW: layerNormDW,
		kernels.Act: act, kernels.ActBwd: actBwd, kernels.Take: take, kernels.TakeBwd: takeBwd,
		kernels.ScaleRows: scaleRows, kernels.MulCols: mulCols, kernels.MulColsDW: mulColsDW,
		kernels.RopeAxes: ropeAxes,
		kernels.Turn:     turn, kernels.TurnDW: turnDW,
	} {
		table[op] = f
	}
}

// layerNorm is y = (x - mean)·rstd·w + b per row; mean and rstd are kept for the gradient.
func layerNorm(b *Backend, c *kernels.Call) {
	x, y, mean, rstd, d := viewOf(c.In[0]), viewOf(c.Out[0]), c.Out[1].F32(), c.Out[2].F32(), lastDim(c.In[0])
	b.rows(len(rstd), 2*d, func(w *worker, from, to int) {
		weight := w.in(viewOf(c.In[1]), 0, d)
		var bias []float32
		if len(c.In) > 2 && c.In[2] != nil {
			bias = w.in(viewOf(c.In[2]), 0, d)
		} else {
			bias = w.arena.zero(d)
		}
		for i := from; i < to; i++ {
			if h := w.k.half; h != nil && x.d == tensor.BF16 {
				row := x.h[i*d:][:d]
				mean[i] = h.sum(row) / float32(d)
				rstd[i] = rootInverse(h.centred(row, mean[i]), d, c.Attr.F[0])
				h.layer(y.h[i*d:][:d], row, weight, bias, mean[i], rstd[i])
				continue
			}
			m := w.arena.mark()
			row, out := w.in(x, i*d, d), w.out(y, i*d, d)
			sum, squares := w.k.moments(row, float32(d))
			mean[i], rstd[i] = sum/float32(d), rootInverse(squares, d, c.Attr.F[0])
			w.k.layer(out, row, weight, bias, mean[i], rstd[i])
			w.done(y, i*d, out)
			w.arena.release(m)
		}
	})
}

// layerNormDX is the gradient of the layer norm to its input: that of a norm of the centred row, centred again.
func layerNormDX(b *Backend, c *kernels.Call) {
	dy, x, dx, mean, rstd, d := viewOf(c.In[0]), viewOf(c.In[1]), viewOf(c.Out[0]), c.In[3].F32(),
		c.In[4].F32(), lastDim(c.In[0])
	b.rows(len(rstd), 2*d, func(w *worker, from, to int) {
		weight, z := w.in(viewOf(c.In[2]), 0, d), w.arena.f32(d)
		for i := from; i < to; i++ {
			m := w.arena.mark()
			g, out := w.in(dy, i*d, d), w.out(dx, i*d, d)
			w.k.shift(z, w.in(x, i*d, d), -mean[i])
			r := flushed(rstd[i])
			m1, m2 := w.k.dot(g, weight)/float32(d), flushed(r*r)*w.k.dot3(g, z, weight)/float32(d)
			w.k.normDX(out, g, z, weight, r, m2)
			w.k.shift(out, out, -r*m1)
			w.done(dx, i*d, out)
			w.arena.release(m)
		}
	})
}

// layerNormDW is the sum of dy·(x - mean)·rstd over the rows.
func layerNormDW(b *Backend, c *kernels.Call) {
	dy, x, mean, rstd, d := viewOf(c.In[0]), viewOf(c.In[1]), c.In[2].F32(), c.In[3].F32(), lastDim(c.In[0])
	b.columnSums(c.Out[0].F32(), len(rstd), c.Attr.I[0] == kernels.Accumulate, func(w *worker, s []float32, r, at int) {
		z := w.arena.f32(len(s))
		w.k.shift(z, w.in(x, r*d+at, len(s)), -mean[r])
		w.k.mulAcc(s, w.in(dy, r*d+at, len(s)), z, rstd[r])
	})
}

// sigmoids are a and b of the activations x/(1+exp(-(a·x + b·x³))), by kind.
var sigmoids = map[int][2]float32{kernels.GELUTanh: {1.5957691216057308, 1.5957691216057308 * 0.044715},
	kernels.QuickGELU: {1.702, 0}, kernels.SiLU: {1, 0}}

func act(b *Backend, c *kernels.Call) { b.elements(c.Out[0].Len(), actPiece(b, c)) }

// actPiece is the activation that the attribute names, on any part of the elements. The kinds that
// are x·sigmoid(…) share one kernel.
func actPiece(_ *Backend, c *kernels.Call) piece {
	x, y, kind := viewOf(c.In[0]), viewOf(c.Out[0]), c.Attr.I[0]
	k := sigmoids[kind]
	return func(w *worker, at, n int) {
		if h := w.k.half; h != nil && kind == kernels.GELU && x.d == tensor.BF16 {
			h.gelu(y.h[at:at+n], x.h[at:at+n])
			return
		}
		in, out := w.in(x, at, n), w.out(y, at, n)
		switch kind {
		case kernels.ReLU:
			w.k.relu(out, in)
		case kernels.GELU:
			w.k.gelu(out, in)
		case kernels.Tanh:
			copy(out, in)
			w.softCap(out, nil, 1, 1)
		case kernels.Mish:
			w.mish(out, in, nil)
		case kernels.Exp:
			w.k.exp(out, in, 1, 0, 1)
		default:
			s := w.arena.f32(n)
			w.k.gate(s, in, k[0], k[1])
			w.k.mul(out, in, s)
		}
		w.done(y, at, out)
	}
}

func actBwd(b *Backend, c *kernels.Call) { b.elements(c.Out[0].Len(), actBwdPiece(b, c)) }

// actBwdPiece is the gradient of that activation, computed from x rather than from y, as several
// activations cannot be inverted.
func actBwdPiece(_ *Backend, c *kernels.Call) piece {
	dy, x, dx, kind := viewOf(c.In[0]), viewOf(c.In[1]), viewOf(c.Out[0]), c.Attr.I[0]
	k := sigmoids[kind]
	return func(w *worker, at, n int) {
		if h := w.k.half; h != nil && kind == kernels.GELU && x.d == tensor.BF16 {
			h.geluBwd(dx.h[at:at+n], dy.h[at:at+n], x.h[at:at+n])
			return
		}
		in, g, out := w.in(x, at, n), w.in(dy, at, n), w.out(dx, at, n)
		switch kind {
		case kernels.ReLU:
			w.k.reluBwd(out, g, in)
		case kernels.GELU:
			w.k.geluBwd(out, g, in)
		case kernels.Tanh:
			s, slope := w.arena.f32(n), w.arena.f32(n)
			copy(s, in)
			w.softCap(s, slope, 1, 1)
			w.k.mul(out, g, slope)
		case kernels.Mish:
			w.mish(out, in, g)
		case kernels.Exp:
			s := w.arena.f32(n)
			w.k.exp(s, in, 1, 0, 1)
			w.k.mul(out, g, s)
		default:
			s := w.arena.f32(n)
			w.k.gate(s, in, k[0], k[1])
			w.k.gateBwd(out, g, in, s, k[0], k[1])
		}
		w.done(dx, at, out)
	}
}

// goReLU is max(x, 0).
func goReLU(y, x []float32) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] = max(v, 0)
	}
}

// goReLUBwd sets dx to dy where x is above 0 or NaN, and to 0 elsewhere: without a branch on the signs, which
// lie as they come.
func goReLUBwd(dx, dy, x []float32) {
	dx, dy = dx[:len(x)], dy[:len(x)]
	for i, v := range x {
		s := int32(math.Float32bits(v))
		keep := (-s >> 31) &^ (s >> 31) // all bits where s > 0, which is below 0 for -0
		if v != v {
			keep = -1
		}
		dx[i] = math.Float32frombits(math.Float32bits(dy[i]) & uint32(keep))
	}
}

// take copies rows by index; an index outside of x gives zeros.
func take(b *Backend, c *kernels.Call) {
	idx, x, y := c.In[1].I32(), c.In[0], c.Out[0]
	if len(idx) == 0 {
		return
	}
	n := len(y.Bytes()) / len(idx)
	b.rows(len(idx), n/4, func(_ *worker, from, to int) {
		for i := from; i < to; i++ {
			dst := y.Bytes()[i*n : (i+1)*n]
			if r := int(idx[i]); r >= 0 && r < x.Shape[0] {
				copy(dst, x.Bytes()[r*n:])
			} else {
				clear(dst)
			}
		}
	})
}

// takeBwd sorts the rows by where they go, so that each row of dx is summed by one task in order.
func takeBwd(b *Backend, c *kernels.Call) {
	idx, dy, dx := c.In[1].I32(), viewOf(c.In[0]), viewOf(c.Out[0])
	rows := c.Out[0].Shape[0]
	if rows == 0 {
		return
	}
	n := c.Out[0].Len() / rows
	first := make([]int32, rows+1)
	for _, r := range idx {
		if r >= 0 && int(r) < rows {
			first[r+1]++
		}
	}
	for r := range rows {
		first[r+1] += first[r]
	}
	order, next := make([]int32, first[rows]), append([]int32(nil), first...)
	for i, r := range idx {
		if r >= 0 && int(r) < rows {
			order[next[r]] = int32(i)
			next[r]++
		}
	}
	b.rows(rows, n, func(w *worker, from, to int) {
		for r := from; r < to; r++ {
			m := w.arena.mark()
			out := w.out(dx, r*n, n)
			clear(out)
			for _, i := range order[first[r]:first[r+1]] {
				m := w.arena.mark()
				w.k.add(out, out, w.in(dy, int(i)*n, n))
				w.arena.release(m)
			}
			w.done(dx, r*n, out)
			w.arena.release(m)
		}
	})
}

// scaleRows multiplies each row by a number of its own.
func scaleRows(b *Backend, c *kernels.Call) {
	x, y, s, d := viewOf(c.In[0]), viewOf(c.Out[0]), c.In[1].F32(), lastDim(c.In[0])
	b.rows(len(s), d, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			m := w.arena.mark()
			out := w.out(y, i*d, d)
			w.k.scale(out, w.in(x, i*d, d), s[i])
			w.done(y, i*d, out)
			w.arena.release(m)
		}
	})
}

// mulCols multiplies each column by a weight of its own.
func mulCols(b *Backend, c *kernels.Call) {
	x, y, d := viewOf(c.In[0]), viewOf(c.Out[0]), lastDim(c.In[0])
	b.rows(c.In[0].Rows(), d, func(w *worker, from, to int) {
		weight := w.in(viewOf(c.In[1]), 0, d)
		for i := from; i < to; i++ {
			m := w.arena.mark()
			out := w.out(y, i*d, d)
			w.k.mul(out, w.in(x, i*d, d), weight)
			w.done(y, i*d, out)
			w.arena.release(m)
		}
	})
}

// mulColsDW is the gradient to those weights, the sum of dy·x over the rows.
func mulColsDW(b *Backend, c *kernels.Call) {
	dy, x, d := viewOf(c.In[0]), viewOf(c.In[1]), lastDim(c.In[0])
	b.columnSums(c.Out[0].F32(), c.In[0].Rows(), c.Attr.I[0] == kernels.Accumulate,
		func(w *worker, s []float32, r, at int) {
			w.k.mulAcc(s, w.in(dy, r*d+at, len(s)), w.in(x, r*d+at, len(s)), 1)
		})
}

// ropeAxes is ropeTable for positions of several coordinates; axis tells for each frequency which coordinate it takes.
func ropeAxes(b *Backend, c *kernels.Call) {
	pos, inv, axis, cos, sin := c.In[0].I32(), c.In[1].F32(), c.In[2].I32(), c.Out[0].F32(), c.Out[1].F32()
	n, r := c.In[0].Shape[1], len(inv)
	b.rows(c.In[0].Shape[0], r*4, func(_ *worker, from, to int) {
		for i := from; i < to; i++ {
			for j, f := range inv {
				s, q := math.Sincos(float64(float32(pos[i*n+int(axis[j])]) * f))
				cos[i*r+j], sin[i*r+j] = float32(q*c.Attr.F[0]), float32(s*c.Attr.F[0])
			}
		}
	})
}

// turn turns marked rows by learned angles, and copies the others.
func turn(b *Backend, c *kernels.Call) {
	x, y, mark := viewOf(c.In[0]), viewOf(c.Out[0]), c.In[2].I32()
	h, d, r := c.In[0].Shape[1], c.In[0].Shape[2], c.In[1].Len()
	b.rows(len(mark), h*d, func(w *worker, from, to int) {
		angle, cos, sin := w.in(viewOf(c.In[1]), 0, r), w.arena.f32(r), w.arena.f32(r)
		for j, a := range angle {
			s, q := math.Sincos(float64(a))
			cos[j], sin[j] = float32(q), float32(s)
		}
		for i := from; i < to; i++ {
			m := w.arena.mark()
			in, out := w.in(x, i*h*d, h*d), w.out(y, i*h*d, h*d)
			if mark[i] != 0 {
				b.k.rope(out, in, cos, sin, h, d, float32(c.Attr.I[0]))
			} else {
				copy(out, in)
			}
			w.done(y, i*h*d, out)
			w.arena.release(m)
		}
	})
}

// turnDW is the gradient to the angles, from the turned rows: a turned pair's derivative is the pair at a right angle.
func turnDW(b *Backend, c *kernels.Call) {
	dy, y, mark := viewOf(c.In[0]), viewOf(c.In[1]), c.In[2].I32()
	h, d, r := c.In[0].Shape[1], c.In[0].Shape[2], c.Out[0].Len()
	b.columnSums(c.Out[0].F32(), len(mark), c.Attr.I[0] == kernels.Accumulate,
		func(w *worker, s []float32, row, at int) {
			if mark[row] == 0 {
				return
			}
			n := len(s)
			for head := range h {
				m := w.arena.mark()
				a := (row*h+head)*d + at
				g1, g2, y1, y2 := w.in(dy, a, n), w.in(dy, a+r, n), w.in(y, a, n), w.in(y, a+r, n)
				for j := range s {
					s[j] += g2[j]*y1[j] - g1[j]*y2[j]
				}
				w.arena.release(m)
			}
		})
}
