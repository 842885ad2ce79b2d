package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

// deltaGrad is what the backward of a chunk has beside its forward. X = βV and Y = βγK are the right sides
// of the chunk's triangular system.
type deltaGrad struct {
	*deltaRun
	do, dx, dy     mat
	dp, da         mat // then both times the decay between two tokens
	dq, dk         mat // of the chunk
	dw, dWritten   mat
	ds             mat // of the state behind the chunk, then before it
	along          mat // V'·dSᵀ
	dsum, dg, dbet []float32
}

// deltaRuleBwd walks each value head forward for the states before its chunks, and back for the gradients.
func deltaRuleBwd(b *Backend, c *kernels.Call) {
	in, cu, do := deltaOperands(c, 1), c.In[6].I32(), viewOf(c.In[0])
	for _, t := range c.Out {
		clearBeyond(t, cu)
	}
	dq, dk, dv, dg, dbeta := viewOf(
		c.Out[0],
	), viewOf(
		c.Out[1],
	), viewOf(
		c.Out[2],
	), c.Out[3].F32(), c.Out[4].F32()
	tasks, rows := deltaTasks(cu, in.h)
	b.shareWork(len(tasks), rows*15*in.d*in.e, func(w *worker, i int) {
		t, r := tasks[i], w.deltaGrad(in.d, in.e)
		n := t.to - t.from
		chunks := ceilDiv(n, deltaChunk)
		states := w.mat(chunks*in.d, in.e)
		allQ, allK := w.mat(n, in.d), w.mat(n, in.d) // of unit rows, over value heads
		size := in.d * states.step
		for head := t.key * in.n / in.h; head < (t.key+1)*in.n/in.h; head++ {
			clear(r.s.v)
			clear(r.ds.v)
			for c := range chunks {
				copy(states.v[c*size:(c+1)*size], r.s.v)
				if c < chunks-1 {
					w.loadDelta(r.deltaRun, &in, t.from+c*deltaChunk, t.from+(c+1)*deltaChunk, head)
					w.writes(r.deltaRun)
					w.advance(r.deltaRun)
				}
			}
			for c := chunks - 1; c >= 0; c-- {
				from := t.from + c*deltaChunk
				copy(r.s.v, states.v[c*size:(c+1)*size])
				w.loadDelta(r.deltaRun, &in, from, min(from+deltaChunk, t.to), head)
				w.writes(r.deltaRun)
				for i := range r.n {
					w.k.read(r.do.row(i)[:in.e], do, ((from+i)*in.n+head)*in.e)
				}
				w.deltaChunkBwd(r)
				for i := range r.n {
					at := (from+i)*in.n + head
					dg[at], dbeta[at] = r.dg[i], r.dbet[i]
					w.k.scale(r.dx.row(i), r.dx.row(i), r.beta[i])
					w.k.write(dv, at*in.e, r.dx.row(i)[:in.e])
					w.k.axpy(allQ.row(from+i-t.from), r.dq.row(i), 1)
					w.k.axpy(allK.row(from+i-t.from), r.dk.row(i), 1)
				}
			}
		}
		x := r.q.row(0)
		for i := range n {
			at := ((t.from+i)*in.h + t.key) * in.d
			w.unitBwd(dq, at, allQ.row(i), x, in.q, in.d, in.eps, 1/math.Sqrt(float64(in.d)))
			w.unitBwd(dk, at, allK.row(i), x, in.k, in.d, in.eps, 1)
		}
	})
}

// unitBwd writes the gradient of a row from that of what unitRow made of it; x is scratch.
func (w *worker) unitBwd(dst view, at int, dy, x []float32, in view, d int, eps, scale float64) {
	w.k.read(x[:d], in, at)
	clear(x[d:])
	r := 1 / math.Sqrt(float64(w.k.dot(x, x))+eps)
	along := float64(w.k.dot(x, dy))
	w.k.scale(dy, dy, float32(scale*r))
	w.k.axpy(dy, x, float32(-scale*r*r*r*along))
	w.k.write(dst, at, dy[:d])
}

func (w *worker) deltaGrad(d, e int) *deltaGrad {
	c := deltaChunk
	return &deltaGrad{
		deltaRun: w.deltaRun(
			d,
			e,
		), do: w.mat(c, e), dx: w.mat(c, e), dy: w.mat(c, d), dp: w.mat(c, c), da: w.mat(c, c),
		dq: w.mat(
			c,
			d,
		), dk: w.mat(c, d), dw: w.mat(c, d), dWritten: w.mat(c, e), ds: w.mat(d, e), along: w.mat(c, d),
		dsum: make([]float32, c), dg: make([]float32, c), dbet: make([]float32, c),
	}
}

// deltaChunkBwd makes the gradients of a chunk from those of its outputs and of the state behind it, which
// becomes that of the state before it.
func (w *worker) deltaChunkBwd(r *deltaGrad) {
	n, last := r.n, r.sum[r.n-1]
	for _, m := range []mat{r.dWritten, r.dw, r.dq, r.dk, r.dp, r.da, r.along} {
		clear(m.v)
	}
	clear(r.dsum)
	w.addTransMul(r.dWritten, r.p, r.do, n, n)
	w.dots(r.along, r.written, r.ds, n, r.d, false)
	for i := range n {
		f := decayOf(last - r.sum[i])
		for p := range r.d {
			w.k.axpy(r.dWritten.row(i), r.ds.row(p), f*r.k.v[i*r.k.step+p])
		}
		for p := range r.d {
			r.dw.v[i*r.dw.step+p] = -w.k.dot(r.dWritten.row(i), r.s.row(p))
		}
	}
	w.dots(r.dp, r.do, r.written, n, n, true)
	for i := n - 1; i >= 0; i-- { // the transposed system
		copy(r.dx.row(i), r.dWritten.row(i))
		copy(r.dy.row(i), r.dw.row(i))
		for j := i + 1; j < n; j++ {
			x := -r.a.v[j*r.a.step+i]
			w.k.axpy(r.dx.row(i), r.dx.row(j), x)
			w.k.axpy(r.dy.row(i), r.dy.row(j), x)
		}
	}
	w.deltaPairs(r)
	w.addMul(r.dq, r.dp, r.k, n, n)
	w.addTransMul(r.dk, r.dp, r.q, n, n)
	w.addMul(r.dk, r.da, r.k, n, n)
	w.addTransMul(r.dk, r.da, r.k, n, n)
	w.deltaRows(r)
	w.k.scale(r.ds.v, r.ds.v, decayOf(last))
	for i := range n {
		f := decayOf(r.sum[i])
		for p := range r.d {
			w.k.axpy(r.ds.row(p), r.do.row(i), f*r.q.v[i*r.q.step+p])
			w.k.axpy(r.ds.row(p), r.dWritten.row(i), -r.w.v[i*r.w.step+p])
		}
	}
	sum := float32(0)
	for i := n - 1; i >= 0; i-- {
		sum += r.dsum[i]
		r.dg[i] = sum
	}
}

// deltaPairs makes the gradients of A and P, what they give to the decays and to beta, and multiplies them
// with the decay between the two tokens, that of A with beta too.
func (w *worker) deltaPairs(r *deltaGrad) {
	for i := range r.n {
		r.dbet[i] = w.k.dot(r.dx.row(i), r.v.row(i)) + decayOf(r.sum[i])*w.k.dot(r.dy.row(i), r.k.row(i))
		for j := range i + 1 {
			at, f := i*r.a.step+j, decayOf(r.sum[i]-r.sum[j])
			e := r.dp.v[at] * r.p.v[at]
			r.dsum[i] += e
			r.dsum[j] -= e
			r.dp.v[at] *= f
			if j == i {
				continue
			}
			da := -w.k.dot(r.dx.row(i), r.u.row(j)) - w.k.dot(r.dy.row(i), r.w.row(j))
			e = da * r.a.v[at]
			r.dsum[i] += e
			r.dsum[j] -= e
			r.dbet[i] += da * f * w.k.dot(r.k.row(i), r.k.row(j))
			r.da.v[at] = da * f * r.beta[i]
		}
	}
}

// deltaRows adds what goes through the states before and behind the chunk.
func (w *worker) deltaRows(r *deltaGrad) {
	last, all := r.sum[r.n-1], float32(0)
	for i := range r.n {
		f, g := decayOf(r.sum[i]), decayOf(last-r.sum[i])
		read := float32(0)
		for p := range r.d {
			x := f * w.k.dot(r.do.row(i), r.s.row(p))
			r.dq.v[i*r.dq.step+p] += x
			read += x * r.q.v[i*r.q.step+p]
		}
		kept := g * w.k.dot(r.k.row(i), r.along.row(i))
		r.dsum[i] += read + r.beta[i]*f*w.k.dot(r.dy.row(i), r.k.row(i)) - kept
		all += kept
		w.k.axpy(r.dk.row(i), r.along.row(i), g)
		w.k.axpy(r.dk.row(i), r.dy.row(i), r.beta[i]*f)
	}
	r.dsum[r.n-1] += all + decayOf(last)*w.k.dot(r.s.v, r.ds.v)
}
