package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

func init() {
	table[kernels.AttentionSink], table[kernels.AttentionSinkBwd] = attentionSink, attentionSinkBwd
	table[kernels.BoundedGLU], table[kernels.BoundedGLUBwd] = boundedGLU, boundedGLUBwd
	table[kernels.GroupIDs] = groupIDs
}

// attentionSink takes into each head's softmax a learned logit that has no value. It needs only the
// sums of the attention before, so it scales the finished output.
func attentionSink(b *Backend, c *kernels.Call) {
	o, y, lse, all := viewOf(c.In[0]), viewOf(c.Out[0]), c.In[1].F32(), c.Out[1].F32()
	h, e := c.In[0].Shape[1], c.In[0].Shape[2]
	sink := b.floats(c, 2)
	b.rows(len(lse), e, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			m := w.arena.mark()
			var share float32
			all[i], share, _ = mergeWeights(lse[i], sink[i%h])
			row := w.out(y, i*e, e)
			w.k.scale(row, w.in(o, i*e, e), share)
			w.done(y, i*e, row)
			w.arena.release(m)
		}
	})
}

// floats are the elements of a small operand as float32.
func (b *Backend) floats(c *kernels.Call, in int) []float32 {
	out := make([]float32, c.In[in].Len())
	b.k.read(out, viewOf(c.In[in]), 0)
	return out
}

// attentionSinkBwd takes heads one by one, rows in order, so that sums do not depend on threads.
func attentionSinkBwd(b *Backend, c *kernels.Call) {
	dy, y, all, out := viewOf(c.In[0]), viewOf(c.In[1]), c.In[2].F32(), c.Out[0].F32()
	h, e := c.In[0].Shape[1], c.In[0].Shape[2]
	sink := b.floats(c, 3)
	b.rows(h, c.In[0].Shape[0]*e, func(w *worker, from, to int) {
		for j := from; j < to; j++ {
			var sum float64
			for i := j; i < len(all); i += h {
				m := w.arena.mark()
				p := math.Exp(float64(sink[j]) - float64(all[i]))
				sum -= p * float64(dotOf(w.in(dy, i*e, e), w.in(y, i*e, e)))
				w.arena.release(m)
			}
			if c.Attr.I[0] == kernels.Accumulate {
				sum += float64(out[j])
			}
			out[j] = float32(sum)
		}
	})
}

// dotOf is the product of two rows in float64.
func dotOf(a, b []float32) (sum float64) {
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}

// boundedGLU is swiglu of bounded numbers: a·sigmoid(f·a)·(b+1) = swiglu(f·a, (b+1)/f).
func boundedGLU(b *Backend, c *kernels.Call) {
	g, u, y := viewOf(c.In[0]), viewOf(c.In[1]), viewOf(c.Out[0])
	most, slope := float32(c.Attr.F[0]), float32(c.Attr.F[1])
	b.elements(c.Out[0].Len(), func(w *worker, at, n int) {
		x, v := w.bounded(w.in(g, at, n), w.in(u, at, n), most, slope)
		s := w.out(y, at, n)
		w.k.swiglu(s, x, v)
		w.done(y, at, s)
	})
}

// bounded is what swiglu takes in place of the operands of bounded_glu.
func (w *worker) bounded(g, u []float32, most, slope float32) (x, v []float32) {
	x, v = w.arena.f32(len(g)), w.arena.f32(len(g))
	for i := range g {
		x[i] = slope * min(g[i], most)
		v[i] = (min(max(u[i], -most), most) + 1) / slope
	}
	return x, v
}

// boundedGLUBwd is the gradient of the gated unit whose inputs are clamped; clamped inputs have none.
func boundedGLUBwd(b *Backend, c *kernels.Call) {
	dy, g, u := viewOf(c.In[0]), viewOf(c.In[1]), viewOf(c.In[2])
	dg, du := viewOf(c.Out[0]), viewOf(c.Out[1])
	most, slope := float32(c.Attr.F[0]), float32(c.Attr.F[1])
	b.elements(c.Out[0].Len(), func(w *worker, at, n int) {
		gate, up := w.in(g, at, n), w.in(u, at, n)
		x, v := w.bounded(gate, up, most, slope)
		s, t := w.out(dg, at, n), w.out(du, at, n)
		w.k.swigluBwd(s, t, w.in(dy, at, n), x, v)
		for i := range s {
			s[i], t[i] = s[i]*slope, t[i]/slope
			if gate[i] > most {
				s[i] = 0
			}
			if up[i] > most || up[i] < -most {
				t[i] = 0
			}
		}
		w.done(dg, at, s)
		w.done(du, at, t)
	})
}

// groupIDs turns the begins of groups into the group of each row; rows beyond the last have -1.
func groupIDs(_ *Backend, c *kernels.Call) {
	off, ids := c.In[0].I32(), c.Out[0].I32()
	for i := range ids {
		ids[i] = -1
	}
	for g := range len(off) - 1 {
		for i := off[g]; i < off[g+1]; i++ {
			ids[i] = int32(g)
		}
	}
}
