package cpu

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/routing"
)

// What routers are trained with beside the model's own loss.

func init() {
	for op, f := range map[kernels.Op]func(*Backend, *kernels.Call){
		kernels.BalanceEach: balanceEach, kernels.BalanceEachBwd: balanceEachBwd, kernels.Surplus: surplus,
		kernels.SignStep: signStep, kernels.ZLoss: zLoss, kernels.ZLossBwd: zLossBwd, kernels.Jitter: jitter,
		kernels.GateRows: gateRows, kernels.GateRowsBwd: gateRowsBwd, kernels.KindRows: kindRows,
		kernels.KindExperts: kindExperts, kernels.KindSurplus: kindSurplus,
	} {
		table[op] = f
	}
}

// sequence is the rows of one that has some.
type sequence struct{ from, to int }

// sequences are the bounds of the sequences that have tokens.
func sequences(cu []int32) (out []sequence) {
	for i := range len(cu) - 1 {
		if cu[i+1] > cu[i] {
			out = append(out, sequence{int(cu[i]), int(cu[i+1])})
		}
	}
	return out
}

// eachSequence gives f the counts and shares of every sequence, and the factor of their products in the loss.
func (b *Backend) eachSequence(c *kernels.Call, logits []float32, e int, cu []int32,
	f func(w *routing.Worker, i int, s sequence, n, p []float64, by float64)) int {
	l := sequences(cu)
	b.shareWork(len(l), len(logits)*routeCost*elementCost, func(_ *worker, i int) {
		w, n, p := routing.Router{Score: routing.Score(c.Attr.I[1])}.Worker(e), make([]float64, e), make([]float64, e)
		s := l[i]
		w.Sums(logits[s.from*e:s.to*e], c.Attr.I[0], n, p)
		rows := float64(s.to - s.from)
		f(w, i, s, n, p, c.Attr.F[0]/(rows*rows*float64(len(l))))
	})
	return len(l)
}

// balanceEach is the balance loss taken for each sequence by itself, then summed.
func balanceEach(b *Backend, c *kernels.Call) {
	logits, e, cu := c.In[0].F32(), lastDim(c.In[0]), c.In[1].I32()
	losses := make([]float64, len(cu))
	b.eachSequence(c, logits, e, cu, func(_ *routing.Worker, i int, _ sequence, n, p []float64, by float64) {
		for j := range n {
			losses[i] += by * n[j] * p[j]
		}
	})
	sum := 0.0
	for _, l := range losses {
		sum += l
	}
	c.Out[0].F32()[0] = float32(sum)
}

// balanceEachBwd is the gradient of that loss to the logits; rows of no sequence have 0.
func balanceEachBwd(b *Backend, c *kernels.Call) {
	seed, logits, e, out := float64(c.In[0].F32()[0]), c.In[1].F32(), lastDim(c.In[1]), c.Out[0].F32()
	clear(out)
	b.eachSequence(c, logits, e, c.In[2].I32(), func(w *routing.Worker, _ int, s sequence, n, _ []float64, by float64) {
		for j := range n {
			n[j] *= seed * by
		}
		for i := s.from; i < s.to; i++ {
			w.SharesGradient(logits[i*e:(i+1)*e], n, out[i*e:(i+1)*e])
		}
	})
}

// surplus is by how many tokens each expert has more than the mean, from which the bias of the choice is adjusted.
func surplus(_ *Backend, c *kernels.Call) {
	idx, k, out := c.In[0].I32(), lastDim(c.In[0]), c.Out[0].F32()
	from, to := counted(c, c.In[1].I32(), c.In[0].Rows())
	n := make([]float64, len(out))
	for _, e := range idx[from*k : to*k] {
		n[e]++
	}
	mean := float64((to-from)*k) / float64(len(n))
	for i, x := range n {
		if c.Attr.I[0] == kernels.Accumulate {
			x += float64(out[i])
		}
		out[i] = float32(x - mean)
	}
}

// signStep moves each bias by a fixed step against the sign of its surplus (arXiv:2408.15664). A
// step whose gradients overflowed is left out, and a NaN is passed on rather than hidden.
func signStep(_ *Backend, c *kernels.Call) {
	g, p := c.In[0].F32(), c.Out[0].F32()
	if c.In[1].F64()[kernels.ClipOverflow] == 1 {
		return
	}
	for i, x := range g {
		switch {
		case x > 0:
			p[i] = float32(float64(p[i]) - c.Attr.F[0])
		case x < 0:
			p[i] = float32(float64(p[i]) + c.Attr.F[0])
		case x != x:
			p[i] = x
		}
	}
}

// zLoss is the mean of the squared logarithm of each token's softmax sum, which keeps logits
// from growing (arXiv:2202.08906).
func zLoss(_ *Backend, c *kernels.Call) {
	logits, e, cu, sum := c.In[0].F32(), lastDim(c.In[0]), c.In[1].I32(), 0.0
	from, to := counted(c, cu, c.In[0].Rows())
	scores := make([]float64, e)
	for i := from; i < to; i++ {
		z := routing.LogSum(scores, logits[i*e:(i+1)*e])
		sum += z * z
	}
	c.Out[0].F32()[0] = float32(c.Attr.F[0] * sum / max(1, float64(cu[len(cu)-1]-cu[0])))
}

// zLossBwd is the gradient of that loss to the logits.
func zLossBwd(b *Backend, c *kernels.Call) {
	logits, e, cu, out := c.In[1].F32(), lastDim(c.In[1]), c.In[2].I32(), c.Out[0].F32()
	by := float64(c.In[0].F32()[0]) * c.Attr.F[0] / max(1, float64(cu[len(cu)-1]-cu[0]))
	from, to := counted(c, cu, c.In[1].Rows())
	clear(out)
	b.rows(to-from, e*routeCost, func(_ *worker, lo, hi int) {
		scores := make([]float64, e)
		for i := from + lo; i < from+hi; i++ {
			z := routing.LogSum(scores, logits[i*e:(i+1)*e])
			for j, s := range scores {
				out[i*e+j] = float32(2 * z * by * s)
			}
		}
	})
}

// jitter multiplies the inputs of the router by random factors around 1. They follow from the row's
// key and the column, so that recomputing gives the same.
func jitter(b *Backend, c *kernels.Call) {
	x, y, key, d := viewOf(c.In[0]), viewOf(c.Out[0]), c.In[1].I64(), lastDim(c.In[0])
	most := c.Attr.F[0]
	b.rows(len(key), d, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			m := w.arena.mark()
			in, out := w.in(x, i*d, d), w.out(y, i*d, d)
			seed := kernels.SplitMix(uint64(key[i]) + (uint64(c.Attr.I[0])+1)*kernels.Golden)
			for j := range out {
				u := float64(kernels.SplitMix(seed+uint64(j)*kernels.Golden)>>40) / (1 << 24)
				out[j] = float32(float64(in[j]) * (1 + most*(2*u-1)))
			}
			w.done(y, i*d, out)
			w.arena.release(m)
		}
	})
}

// gateRows multiplies each row by the sigmoid of its own gate.
func gateRows(b *Backend, c *kernels.Call) {
	x, y, z, d := viewOf(c.In[0]), viewOf(c.Out[0]), c.In[1].F32(), lastDim(c.In[0])
	b.rows(len(z), d, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			m := w.arena.mark()
			out := w.out(y, i*d, d)
			w.k.scale(out, w.in(x, i*d, d), sigmoid(z[i]))
			w.done(y, i*d, out)
			w.arena.release(m)
		}
	})
}

// gateRowsBwd gives the gradients to the rows and to the gates.
func gateRowsBwd(b *Backend, c *kernels.Call) {
	dy, x, dx, d := viewOf(c.In[0]), viewOf(c.In[1]), viewOf(c.Out[0]), lastDim(c.In[0])
	z, dz := c.In[2].F32(), c.Out[1].F32()
	b.rows(len(z), 2*d, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			m, s := w.arena.mark(), sigmoid(z[i])
			g, out := w.in(dy, i*d, d), w.out(dx, i*d, d)
			dz[i] = s * (1 - s) * w.k.dot(g, w.in(x, i*d, d))
			w.k.scale(out, g, s)
			w.done(dx, i*d, out)
			w.arena.release(m)
		}
	})
}

// kindRows keeps the rows of one kind, as of images or of text, and clears the others.
func kindRows(b *Backend, c *kernels.Call) {
	x, y, kind, d := viewOf(c.In[0]), viewOf(c.Out[0]), c.In[1].I32(), lastDim(c.In[0])
	b.rows(len(kind), d, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			m := w.arena.mark()
			out := w.out(y, i*d, d)
			if kind[i] == int32(c.Attr.I[0]) {
				copy(out, w.in(x, i*d, d))
			} else {
				clear(out)
			}
			w.done(y, i*d, out)
			w.arena.release(m)
		}
	})
}

// kindExperts keeps the choices of tokens of one kind; the others get -1, which no expert has.
func kindExperts(_ *Backend, c *kernels.Call) {
	idx, own, k := c.In[0].I32(), c.Out[0].I32(), lastDim(c.In[0])
	for i, kind := range c.In[1].I32() {
		row := own[i*k : (i+1)*k]
		if copy(row, idx[i*k:]); kind != int32(c.Attr.I[0]) {
			for j := range row {
				row[j] = -1
			}
		}
	}
}

// kindSurplus is the surplus of each expert over the mean, counting only tokens of its kind.
func kindSurplus(_ *Backend, c *kernels.Call) {
	out := c.Out[0].F32()
	n, all := make([]float64, len(out)), 0
	for _, e := range c.In[0].I32() {
		if e >= 0 {
			n[e]++
			all++
		}
	}
	for i, x := range n {
		if c.Attr.I[0] == kernels.Accumulate {
			x += float64(out[i])
		}
		out[i] = float32(x - float64(all)/float64(len(n)))
	}
}
