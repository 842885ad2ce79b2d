package cpu

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func swiglu(b *Backend, c *kernels.Call) { b.elements(c.Out[0].Len(), swigluPiece(b, c)) }

// swigluPiece is y = g·sigmoid(g)·u on any part of the elements.
func swigluPiece(_ *Backend, c *kernels.Call) piece {
	g, u, y := viewOf(c.In[0]), viewOf(c.In[1]), viewOf(c.Out[0])
	return func(w *worker, at, n int) {
		if h := w.k.half; h != nil && y.d == tensor.BF16 {
			h.swiglu(y.h[at:at+n], g.h[at:at+n], u.h[at:at+n])
			return
		}
		s := w.out(y, at, n)
		w.k.swiglu(s, w.in(g, at, n), w.in(u, at, n))
		w.done(y, at, s)
	}
}

func swigluBwd(b *Backend, c *kernels.Call) { b.elements(c.Out[0].Len(), swigluBwdPiece(b, c)) }

// swigluBwdPiece gives the gradients to g and u on any part of the elements.
func swigluBwdPiece(_ *Backend, c *kernels.Call) piece {
	dy, g, u, dg, du := viewOf(c.In[0]), viewOf(c.In[1]), viewOf(c.In[2]), viewOf(c.Out[0]), viewOf(c.Out[1])
	return func(w *worker, at, n int) {
		if h := w.k.half; h != nil && g.d == tensor.BF16 {
			h.swigluBwd(dg.h[at:at+n], du.h[at:at+n], dy.h[at:at+n], g.h[at:at+n], u.h[at:at+n])
			return
		}
		s, t := w.out(dg, at, n), w.out(du, at, n)
		w.k.swigluBwd(s, t, w.in(dy, at, n), w.in(g, at, n), w.in(u, at, n))
		w.done(dg, at, s)
		w.done(du, at, t)
	}
}

// copyBytes copies equal tensors of any dtype.
func (b *Backend) copyBytes(dst, src *tensor.Tensor) {
	y, x := dst.Bytes(), src.Bytes()
	b.rows(ceilDiv(len(y), 4*blockLen), blockLen, func(_ *worker, from, to int) {
		copy(y[from*4*blockLen:min(to*4*blockLen, len(y))], x[from*4*blockLen:])
	})
}

// sum adds its inputs, in their order. One input is a copy, and float64 is for a few statistics only.
func sum(b *Backend, c *kernels.Call) {
	switch {
	case len(c.In) == 1:
		b.copyBytes(c.Out[0], c.In[0])
	case c.Out[0].DType == tensor.F64:
		sum64(c)
	default:
		b.elements(c.Out[0].Len(), sumPiece(b, c))
	}
}

// sumPiece adds any number of inputs on a part of the elements. Two are the usual case, which
// bfloat16 has a kernel for.
func sumPiece(_ *Backend, c *kernels.Call) piece {
	x, y := views(c.In), viewOf(c.Out[0])
	return func(w *worker, at, n int) {
		if h := w.k.half; h != nil && y.d == tensor.BF16 && len(x) == 2 {
			h.add(y.h[at:at+n], x[0].h[at:at+n], x[1].h[at:at+n])
			return
		}
		s := w.out(y, at, n)
		if len(x) == 1 {
			w.k.read(s, x[0], at)
		} else {
			w.k.add(s, w.in(x[0], at, n), w.in(x[1], at, n))
		}
		for _, v := range x[min(2, len(x)):] {
			// Each further input gives its scratch back, so that many inputs need no more than one.
			m := w.arena.mark()
			w.k.add(s, s, w.in(v, at, n))
			w.arena.release(m)
		}
		w.done(y, at, s)
	}
}

// sum64 adds inputs of float64.
func sum64(c *kernels.Call) {
	y := c.Out[0].F64()
	copy(y, c.In[0].F64())
	for _, t := range c.In[1:] {
		for i, x := range t.F64() {
			y[i] += x
		}
	}
}

func mul(b *Backend, c *kernels.Call) { b.elements(c.Out[0].Len(), mulPiece(b, c)) }

// mulPiece is the product of two inputs on a part of the elements.
func mulPiece(_ *Backend, c *kernels.Call) piece {
	x, z, y := viewOf(c.In[0]), viewOf(c.In[1]), viewOf(c.Out[0])
	return func(w *worker, at, n int) {
		if h := w.k.half; h != nil && y.d == tensor.BF16 {
			h.mul(y.h[at:at+n], x.h[at:at+n], z.h[at:at+n])
			return
		}
		s := w.out(y, at, n)
		w.k.mul(s, w.in(x, at, n), w.in(z, at, n))
		w.done(y, at, s)
	}
}

// scale multiplies by a constant.
func scale(b *Backend, c *kernels.Call) {
	x, y := viewOf(c.In[0]), viewOf(c.Out[0])
	b.elements(c.Out[0].Len(), func(w *worker, at, n int) {
		s := w.out(y, at, n)
		w.k.scale(s, w.in(x, at, n), float32(c.Attr.F[0]))
		w.done(y, at, s)
	})
}

// cast changes the type of all elements. Equal types are copied byte by byte, which keeps the bits of NaNs.
func cast(b *Backend, c *kernels.Call) {
	x, y := c.In[0], c.Out[0]
	switch {
	case x.DType == y.DType:
		b.copyBytes(y, x)
	case x.DType == tensor.F64 || y.DType == tensor.F64:
		cast64(b.k, y, x)
	default:
		in, out := viewOf(x), viewOf(y)
		b.elements(x.Len(), func(w *worker, at, n int) {
			if out.d == tensor.F32 {
				w.k.read(out.f[at:at+n], in, at)
			} else {
				w.k.write(out, at, w.in(in, at, n))
			}
		})
	}
}

// cast64 converts from or to float64; a narrow result is rounded once, through a rounding to odd.
func cast64(k *isa, y, x *tensor.Tensor) {
	var s [blockLen]float32
	for at := 0; at < x.Len(); at += blockLen {
		n := min(blockLen, x.Len()-at)
		switch {
		case y.DType == tensor.F64:
			k.read(s[:n], viewOf(x), at)
			for i, v := range s[:n] {
				y.F64()[at+i] = float64(v)
			}
		case y.DType == tensor.F32:
			for i, v := range x.F64()[at : at+n] {
				y.F32()[at+i] = float32(v)
			}
		default:
			for i, v := range x.F64()[at : at+n] {
				s[i] = tensor.RoundOdd(v)
			}
			k.write(viewOf(y), at, s[:n])
		}
	}
}

// fill sets all elements to a constant. For narrower types it is rounded to odd first, so that
// rounding twice gives the same as rounding once.
func fill(b *Backend, c *kernels.Call) {
	y := c.Out[0]
	if y.DType == tensor.F64 {
		for i := range y.F64() {
			y.F64()[i] = c.Attr.F[0]
		}
		return
	}
	v := viewOf(y)
	b.elements(y.Len(), func(w *worker, at, n int) {
		s := w.out(v, at, n)
		for i := range s {
			s[i] = tensor.RoundOdd(c.Attr.F[0])
		}
		if v.d == tensor.F32 {
			for i := range s {
				s[i] = float32(c.Attr.F[0])
			}
		}
		w.done(v, at, s)
	})
}

// addTo adds to a float32 gradient, or sets it if this is the first part of the step.
func addTo(b *Backend, c *kernels.Call) {
	x, y, acc := c.In[0], c.Out[0], c.Attr.I[0] == kernels.Accumulate
	if y.DType == tensor.F64 || x.DType == tensor.F64 {
		addTo64(b.k, y, x, acc)
		return
	}
	in, out := viewOf(x), y.F32()
	b.elements(y.Len(), func(w *worker, at, n int) {
		if d := out[at : at+n]; acc {
			w.k.add(d, d, w.in(in, at, n))
		} else {
			w.k.read(d, in, at)
		}
	})
}

// addTo64 adds in float64 where an operand is; such tensors are scalars of losses and statistics.
func addTo64(k *isa, y, x *tensor.Tensor, acc bool) {
	xs, ys := tensor.Make(tensor.F64, x.Len()), tensor.Make(tensor.F64, y.Len())
	widen(k, xs, x)
	if acc {
		widen(k, ys, y)
	}
	for i, v := range xs.F64() {
		ys.F64()[i] += v
	}
	if !acc { // -0 stays -0
		ys = xs
	}
	if y.DType == tensor.F64 {
		copy(y.F64(), ys.F64())
	} else {
		cast64(k, y, ys)
	}
}

// widen brings x to float64.
func widen(k *isa, y, x *tensor.Tensor) {
	if x.DType == tensor.F64 {
		copy(y.F64(), x.F64())
	} else {
		cast64(k, y, x)
	}
}

// dropout sets elements to 0 with probability p and scales the others by 1/(1-p). What is dropped
// follows from the row's key and the column alone, so that recomputing drops the same.
func dropout(b *Backend, c *kernels.Call) {
	x, y, key := viewOf(c.In[0]), viewOf(c.Out[0]), c.In[1].I64()
	width, p := c.In[0].Len()/max(1, len(key)), c.Attr.F[0]
	least := uint64(p * (1 << 24)) // u >= p with u = bits/2^24
	if float64(least) < p*(1<<24) {
		least++
	}
	keep := float32(1 / (1 - p))
	b.rows(len(key), width, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			m := w.arena.mark()
			in, out := w.in(x, i*width, width), w.out(y, i*width, width)
			seed := kernels.SplitMix(uint64(key[i]) + (uint64(c.Attr.I[0])+1)*kernels.Golden)
			w.k.scale(out, in, keep)
			for e := range out {
				if kernels.SplitMix(seed+uint64(e)*kernels.Golden)>>40 < least {
					out[e] = 0
				}
			}
			w.done(y, i*width, out)
			w.arena.release(m)
		}
	})
}

// window copies n bytes of each of the outer rows between two arrays of different row length.
func (b *Backend) window(dst, src []byte, outer, dstRow, dstAt, srcRow, srcAt, n int) {
	b.rows(outer, n/4, func(_ *worker, from, to int) {
		for i := from; i < to; i++ {
			copy(dst[i*dstRow+dstAt:][:n], src[i*srcRow+srcAt:][:n])
		}
	})
}

// spans gives the number of rows before axis and the bytes of one index of it.
func spans(t *tensor.Tensor, axis int) (outer, inner int) {
	return tensor.Len(t.Shape[:axis]), tensor.Len(t.Shape[axis+1:]) * t.DType.Size()
}

// slice copies a run of an axis.
func slice(b *Backend, c *kernels.Call) {
	x, y, axis := c.In[0], c.Out[0], c.Attr.I[0]
	outer, inner := spans(x, axis)
	n := y.Shape[axis] * inner
	b.window(y.Bytes(), x.Bytes(), outer, n, 0, x.Shape[axis]*inner, c.Attr.I[1]*inner, n)
}

// concat copies the inputs one after the other along an axis.
func concat(b *Backend, c *kernels.Call) {
	y, axis, at := c.Out[0], c.Attr.I[0], 0
	outer, inner := spans(y, axis)
	for _, x := range c.In {
		n := x.Shape[axis] * inner
		b.window(y.Bytes(), x.Bytes(), outer, y.Shape[axis]*inner, at, n, 0, n)
		at += n
	}
}
