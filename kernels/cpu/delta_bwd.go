package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

// deltaGrad is what the backward of a chunk has beside its forward; the gradients of W and Y are those of
// their negatives, as these are.
type deltaGrad struct {
	*deltaRun
	do, dx, dy     mat
	dp, da         mat // then both times the decay between two tokens
	dq, dk         mat // of the chunk
	dw, dWritten   mat
	ds             mat // of the state behind the chunk, then before it
	along          mat // V'·dSᵀ
	read           mat // dO·Sᵀ
	dsum, dg, dbet []float32
	product        []float32 // of two rows
}

// deltaRuleBwd walks each value head forward for the states before its chunks, and back for the gradients.
func deltaRuleBwd(b *Backend, c *kernels.Call) {
	in, cu, do := deltaOperands(c, 1), c.In[6].I32(), viewOf(c.In[0])
	for _, t := range c.Out {
		clearBeyond(t, cu)
	}
	dq, dk, dv := viewOf(c.Out[0]), viewOf(c.Out[1]), viewOf(c.Out[2])
	dg, dbeta := c.Out[3].F32(), c.Out[4].F32()
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

// deltaGrad makes the scratch for the backward of one head, that of the forward included, because
// the chunk is computed again.
func (w *worker) deltaGrad(d, e int) *deltaGrad {
	c := deltaChunk
	row := func() []float32 { return make([]float32, c) }
	return &deltaGrad{
		deltaRun: w.deltaRun(d, e), do: w.mat(c, e), dx: w.mat(c, e), dy: w.mat(c, d), dp: w.mat(c, c),
		da: w.mat(c, c), dq: w.mat(c, d), dk: w.mat(c, d), dw: w.mat(c, d), dWritten: w.mat(c, e),
		ds: w.mat(d, e), along: w.mat(c, d), read: w.mat(c, d),
		dsum: row(), dg: row(), dbet: row(), product: row(),
	}
}

// deltaChunkBwd makes the gradients of a chunk from those of its outputs and of the state behind it, which
// becomes that of the state before it.
func (w *worker) deltaChunkBwd(r *deltaGrad) {
	n := r.n
	w.transMul(r.dWritten, r.p, r.do, n, n, false)
	w.mul(r.dWritten, w.fade(r.y, r.k, r.left[:n]), r.ds, n, r.d, true)
	w.dots(r.along, r.written, r.ds, n, r.d, false)
	w.dots(r.dw, r.dWritten, r.s, n, r.d, false)
	w.dots(r.read, r.do, r.s, n, r.d, false)
	w.transMul(r.dx, r.inverse, r.dWritten, n, n, false)
	w.transMul(r.dy, r.inverse, r.dw, n, n, false)
	w.dots(r.dp, r.do, r.written, n, n, false)
	w.dots(r.da, r.dx, r.u, n, n, false)
	w.dots(r.da, r.dy, r.w, n, n, true)
	clear(r.dsum)
	w.deltaPairs(r)
	w.mul(r.dq, r.dp, r.k, n, n, false)
	w.transMul(r.dk, r.dp, r.q, n, n, false)
	w.mul(r.dk, r.da, r.k, n, n, true)
	w.transMul(r.dk, r.da, r.k, n, n, true)
	w.deltaRows(r)
	w.k.scale(r.ds.v, r.ds.v, r.since[n-1])
	w.transMul(r.ds, w.fade(r.y, r.q, r.since[:n]), r.do, r.d, n, true)
	w.transMul(r.ds, r.w, r.dWritten, r.d, n, true)
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
		r.dbet[i] = w.k.dot(r.dx.row(i), r.v.row(i)) - r.since[i]*w.k.dot(r.dy.row(i), r.k.row(i))
		decay := r.decay.row(i)
		dp, da := r.dp.row(i), r.da.row(i)
		w.deltaDecays(r, i, dp[:i+1], r.p.row(i)[:i+1])
		w.k.mul(dp[:i+1], dp[:i+1], decay[:i+1])
		clear(dp[i+1:])
		w.deltaDecays(r, i, da[:i], r.a.row(i)[:i]) // both are negative
		w.k.mul(da[:i], da[:i], decay[:i])
		r.dbet[i] -= w.k.dot(da[:i], r.pairs.row(i)[:i])
		w.k.scale(da[:i], da[:i], -r.beta[i])
		clear(da[i:])
	}
}

// deltaDecays adds what row i of a matrix that decays from token to token gives to the sums of g.
func (w *worker) deltaDecays(r *deltaGrad, i int, dy, y []float32) {
	x := r.product[:len(y)]
	w.k.mul(x, dy, y)
	w.k.axpy(r.dsum[:len(y)], x, -1)
	r.dsum[i] += w.k.dot(dy, y)
}

// deltaRows adds what goes through the states before and behind the chunk.
func (w *worker) deltaRows(r *deltaGrad) {
	all := float32(0)
	for i := range r.n {
		since, left := r.since[i], r.left[i]
		w.k.axpy(r.dq.row(i), r.read.row(i), since)
		read := since * w.k.dot(r.read.row(i), r.q.row(i))
		kept := left * w.k.dot(r.k.row(i), r.along.row(i))
		r.dsum[i] += read - r.beta[i]*since*w.k.dot(r.dy.row(i), r.k.row(i)) - kept
		all += kept
		w.k.axpy(r.dk.row(i), r.along.row(i), left)
		w.k.axpy(r.dk.row(i), r.dy.row(i), -r.beta[i]*since)
	}
	r.dsum[r.n-1] += all + r.since[r.n-1]*w.k.dot(r.s.v, r.ds.v)
}
