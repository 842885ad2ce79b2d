package cpu

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	for op, f := range map[kernels.Op]func(*Backend, *kernels.Call){
		kernels.Route: route, kernels.RouteBwd: routeBwd, kernels.RouteOrder: routeOrder,
		kernels.Spread: spread, kernels.Mix: mixRows, kernels.MixDW: mixDW,
		kernels.BalanceSums: balanceSums, kernels.BalanceSumsBwd: balanceSumsBwd,
		kernels.BalanceLoss: balanceLoss, kernels.BalanceLossBwd: balanceLossBwd,
	} {
		table[op] = f
	}
}

// routeCost is the price of one logit in multiplications, roughly: an exponential in float64 and its place
// among the best.
const routeCost = 4

// optional is an operand as float32, nil for none.
func optional(ts []*tensor.Tensor, i int) []float32 {
	if i < len(ts) && ts[i] != nil {
		return ts[i].F32()
	}
	return nil
}

// route chooses k experts per token and their weights. Logits are [t,e]; the bias shifts the choice
// and not the weights.
func route(b *Backend, c *kernels.Call) {
	logits, bias, w, idx := c.In[0].F32(), optional(c.In, 1), c.Out[0].F32(), c.Out[1].I32()
	e, k := lastDim(c.In[0]), lastDim(c.Out[0])
	b.rows(c.In[0].Rows(), e*routeCost, func(_ *worker, from, to int) {
		r := kernels.RouterOf(c.Attr).Worker(e)
		for i := from; i < to; i++ {
			r.Row(logits[i*e:(i+1)*e], bias, idx[i*k:(i+1)*k], w[i*k:(i+1)*k])
		}
	})
}

// routeBwd is the gradient to the logits; the choice itself has none.
func routeBwd(b *Backend, c *kernels.Call) {
	dw, logits, idx, out := c.In[0].F32(), c.In[1].F32(), c.In[2].I32(), c.Out[0].F32()
	e, k := lastDim(c.In[1]), lastDim(c.In[0])
	b.rows(c.In[1].Rows(), e*routeCost, func(_ *worker, from, to int) {
		r := kernels.RouterOf(c.Attr).Worker(e)
		for i := from; i < to; i++ {
			r.Gradient(logits[i*e:(i+1)*e], idx[i*k:(i+1)*k], dw[i*k:(i+1)*k], out[i*e:(i+1)*e])
		}
	})
}

// routeOrder counts, and then puts every row behind those of its expert before it.
func routeOrder(_ *Backend, c *kernels.Call) {
	idx, from, slot, counts := c.In[0].I32(), c.Out[0].I32(), c.Out[1].I32(), c.Out[2].I32()
	if len(c.In) > 2 && c.In[2] != nil {
		seats, k := routing.SeatsOf(c.In[2].I32()), lastDim(c.In[0])
		idx = slices.Clone(idx)
		for i, e := range idx {
			if e >= 0 {
				idx[i] = seats.Of(e, i/k)
			}
		}
	}
	clear(counts)
	for _, e := range idx {
		if e >= 0 {
			counts[e]++
		}
	}
	next, at := make([]int32, len(counts)), int32(0)
	for e, n := range counts {
		next[e] = at
		at += n
	}
	for i := range from[at:] {
		from[int(at)+i] = -1
	}
	for i, e := range idx {
		if e < 0 { // of another kind
			slot[i] = -1
			continue
		}
		from[next[e]], slot[i] = int32(i), next[e]
		next[e]++
	}
	if f := c.Attr.F[0]; f > 0 && len(counts) > 0 {
		var w []float32
		if c.Attr.I[0] == 1 {
			w = c.In[1].F32()
		}
		limitRows(from, slot, counts, int32(math.Ceil(f*float64(len(idx))/float64(len(counts)))), w)
	}
}

// limitRows leaves each expert so many of its rows: the first, or with weights the heaviest.
func limitRows(from, slot, counts []int32, most int32, w []float32) {
	at, kept := int32(0), int32(0)
	for e, n := range counts {
		rows := slices.Clone(from[at : at+n])
		if w != nil && n > most {
			slices.SortStableFunc(rows, func(a, b int32) int {
				return routing.Compare(float64(w[a]), float64(w[b]))
			})
		}
		for _, i := range rows[min(n, most):] {
			slot[i] = -1
		}
		rows = rows[:min(n, most)]
		slices.Sort(rows)
		for _, i := range rows {
			from[kept], slot[i] = i, kept
			kept++
		}
		counts[e] = int32(len(rows))
		at += n
	}
	for i := range from[kept:] {
		from[int(kept)+i] = -1
	}
}

// spread copies each token's row to its slots among the experts' rows, times a weight if given. A
// slot without a token is 0.
func spread(b *Backend, c *kernels.Call) {
	x, y, from, weights, d, k := viewOf(c.In[0]), viewOf(c.Out[0]), c.In[1].I32(), optional(c.In, 2),
		lastDim(c.In[0]), c.Attr.I[0]
	b.rows(len(from), d, func(w *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			m, p := w.arena.mark(), int(from[i])
			out := w.out(y, i*d, d)
			switch {
			case p < 0:
				clear(out)
			case weights != nil:
				w.k.scale(out, w.in(x, p/k*d, d), weights[p])
			default:
				copy(out, w.in(x, p/k*d, d))
			}
			w.done(y, i*d, out)
			w.arena.release(m)
		}
	})
}

// mixRows adds up the rows that a token has got from its k experts, in the order of its choices.
// Slots of experts on other members are passed over.
func mixRows(b *Backend, c *kernels.Call) {
	x, y, slot, weights := viewOf(c.In[0]), viewOf(c.Out[0]), c.In[1].I32(), optional(c.In, 2)
	d, k, rows := lastDim(c.In[0]), lastDim(c.In[1]), c.In[0].Shape[0]
	b.rows(c.Out[0].Rows(), d*k, func(w *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			m := w.arena.mark()
			out := w.out(y, i*d, d)
			clear(out)
			for j := i * k; j < (i+1)*k; j++ {
				s := int(slot[j])
				if s < 0 || s >= rows {
					continue
				}
				m := w.arena.mark()
				row := w.in(x, s*d, d)
				if weights == nil {
					w.k.add(out, out, row)
				} else {
					w.k.axpy(out, row, weights[j])
				}
				w.arena.release(m)
			}
			w.done(y, i*d, out)
			w.arena.release(m)
		}
	})
}

// mixDW is the gradient to the weights of the sum, the dot product of gradient and row; it is 0 for
// slots that are elsewhere.
func mixDW(b *Backend, c *kernels.Call) {
	dy, x, slot, dw := viewOf(c.In[0]), viewOf(c.In[1]), c.In[2].I32(), c.Out[0].F32()
	d, k, rows := lastDim(c.In[0]), lastDim(c.In[2]), c.In[1].Shape[0]
	b.rows(c.In[0].Rows(), d*k, func(w *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			m := w.arena.mark()
			g := w.in(dy, i*d, d)
			for j := i * k; j < (i+1)*k; j++ {
				dw[j] = 0
				if s := int(slot[j]); s >= 0 && s < rows {
					m := w.arena.mark()
					dw[j] = w.k.dot(g, w.in(x, s*d, d))
					w.arena.release(m)
				}
			}
			w.arena.release(m)
		}
	})
}

// balanceRows is the rows that are added up at a time: sums depend on it, and not on the threads.
const balanceRows = 256

// counted are the rows [from, to) that sequences have, of so many from the I[2]-th on.
func counted(c *kernels.Call, cu []int32, rows int) (from, to int) {
	first := c.Attr.I[2]
	from = min(max(0, int(cu[0])-first), rows)
	return from, min(max(from, int(cu[len(cu)-1])-first), rows)
}

// balanceSums counts the choices of each expert and sums its probabilities, over the tokens that
// count. Runs of rows have fixed lengths, so the sums do not depend on the threads.
func balanceSums(b *Backend, c *kernels.Call) {
	logits, e, sums := c.In[0].F32(), lastDim(c.In[0]), c.Out[0].F32()
	from, to := counted(c, c.In[1].I32(), c.In[0].Rows())
	parts := make([][]float64, ceilDiv(to-from, balanceRows))
	b.shareWork(len(parts), (to-from)*e*routeCost*elementCost, func(_ *worker, p int) {
		w, s := routing.Router{Score: routing.Score(c.Attr.I[1])}.Worker(e), make([]float64, 2*e)
		at := from + p*balanceRows
		w.Sums(logits[at*e:min(to, at+balanceRows)*e], c.Attr.I[0], s[:e], s[e:])
		parts[p] = s
	})
	for j := range sums {
		total := 0.0
		for _, s := range parts {
			total += s[j]
		}
		sums[j] = float32(total)
	}
}

// balanceSumsBwd is the gradient of the probabilities' sums to the logits; the counts have none.
func balanceSumsBwd(b *Backend, c *kernels.Call) {
	logits, e, out := c.In[1].F32(), lastDim(c.In[1]), c.Out[0].F32()
	from, to := counted(c, c.In[2].I32(), c.In[1].Rows())
	ds := make([]float64, e)
	for i := range ds {
		ds[i] = float64(c.In[0].F32()[e+i])
	}
	b.rows(c.In[1].Rows(), e*routeCost, func(_ *worker, lo, hi int) {
		w := routing.Router{Score: routing.Score(c.Attr.I[1])}.Worker(e)
		for i := lo; i < hi; i++ {
			if row := out[i*e : (i+1)*e]; i < from || i >= to {
				clear(row)
			} else {
				w.SharesGradient(logits[i*e:(i+1)*e], ds, row)
			}
		}
	})
}

// perPair is what balance_loss multiplies each pair of sums with.
func perPair(c *kernels.Call, sums []float32) float64 {
	n := 0.0
	for _, x := range sums[:len(sums)/2] {
		n += float64(x)
	}
	if n == 0 {
		return 0
	}
	n /= float64(c.Attr.I[0])
	return c.Attr.F[0] / (n * n)
}

// balanceLoss is the loss that punishes uneven use of experts: the sum of share of choices times
// share of probability (arXiv:2101.03961).
func balanceLoss(_ *Backend, c *kernels.Call) {
	sums, s := c.In[0].F32(), 0.0
	e := len(sums) / 2
	for i := range e {
		s += float64(sums[i]) * float64(sums[e+i])
	}
	c.Out[0].F32()[0] = float32(s * perPair(c, sums))
}

// balanceLossBwd is the gradient of the loss to the sums of probabilities, the counts of choices being constants.
func balanceLossBwd(_ *Backend, c *kernels.Call) {
	sums, out := c.In[1].F32(), c.Out[0].F32()
	e, by := len(sums)/2, float64(c.In[0].F32()[0])*perPair(c, sums)
	clear(out)
	for i := range e {
		out[e+i] = float32(by * float64(sums[i]))
	}
}
