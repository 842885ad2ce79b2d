package ref

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	for op, f := range map[kernels.Op]func(*kernels.Call){
		kernels.Route: route, kernels.RouteBwd: routeBwd, kernels.RouteOrder: routeOrder,
		kernels.Spread: spread, kernels.Mix: mixRows, kernels.MixDW: mixDW,
		kernels.BalanceSums: balanceSums, kernels.BalanceSumsBwd: balanceSumsBwd,
		kernels.BalanceLoss: balanceLoss, kernels.BalanceLossBwd: balanceLossBwd,
	} {
		table[op] = f
	}
}

// at is an optional operand.
func at(ts []*tensor.Tensor, i int) *tensor.Tensor {
	if i < len(ts) {
		return ts[i]
	}
	return nil
}

func route(c *kernels.Call) {
	logits, w, idx := c.In[0].F32(), c.Out[0].F32(), c.Out[1].I32()
	e, k := last(c.In[0]), last(c.Out[0])
	var bias []float32
	if b := at(c.In, 1); b != nil {
		bias = b.F32()
	}
	r := kernels.RouterOf(c.Attr).Worker(e)
	for i := range c.In[0].Rows() {
		r.Row(logits[i*e:(i+1)*e], bias, idx[i*k:(i+1)*k], w[i*k:(i+1)*k])
	}
}

func routeBwd(c *kernels.Call) {
	dw, logits, idx, out := c.In[0].F32(), c.In[1].F32(), c.In[2].I32(), c.Out[0].F32()
	e, k := last(c.In[1]), last(c.In[0])
	r := kernels.RouterOf(c.Attr).Worker(e)
	for i := range c.In[1].Rows() {
		r.Gradient(logits[i*e:(i+1)*e], idx[i*k:(i+1)*k], dw[i*k:(i+1)*k], out[i*e:(i+1)*e])
	}
}

func routeOrder(c *kernels.Call) {
	idx, from, slot, counts := c.In[0].I32(), c.Out[0].I32(), c.Out[1].I32(), c.Out[2].I32()
	most := len(idx)
	if f := c.Attr.F[0]; f > 0 {
		most = int(math.Ceil(f * float64(len(idx)) / float64(len(counts))))
	}
	n := 0
	for i := range slot {
		slot[i], from[i] = -1, -1
	}
	for e := range counts {
		var rows []int
		for i, x := range idx {
			if int(x) == e {
				rows = append(rows, i)
			}
		}
		if len(rows) > most && c.Attr.I[0] == 1 {
			w := c.In[1].F32()
			slices.SortStableFunc(rows, func(a, b int) int { return routing.Compare(float64(w[a]), float64(w[b])) })
		}
		rows = rows[:min(len(rows), most)]
		slices.Sort(rows)
		for _, i := range rows {
			slot[i], from[n] = int32(n), int32(i)
			n++
		}
		counts[e] = int32(len(rows))
	}
}

func spread(c *kernels.Call) {
	x, from, d, k := load(c.In[0]), c.In[1].I32(), last(c.In[0]), c.Attr.I[0]
	y := make([]float64, c.Out[0].Len())
	for i, p := range from {
		if p < 0 {
			continue
		}
		w := 1.0
		if t := at(c.In, 2); t != nil {
			w = float64(t.F32()[p])
		}
		axpy(y[i*d:(i+1)*d], w, x[int(p)/k*d:])
	}
	store(c.Out[0], y)
}

func mixRows(c *kernels.Call) {
	x, slot, d, k := load(c.In[0]), c.In[1].I32(), last(c.In[0]), last(c.In[1])
	y := make([]float64, c.Out[0].Len())
	for i, s := range slot {
		if s < 0 || int(s) >= c.In[0].Shape[0] {
			continue
		}
		w := 1.0
		if t := at(c.In, 2); t != nil {
			w = float64(t.F32()[i])
		}
		axpy(y[i/k*d:(i/k+1)*d], w, x[int(s)*d:])
	}
	store(c.Out[0], y)
}

func mixDW(c *kernels.Call) {
	dy, x, slot, d, k := load(c.In[0]), load(c.In[1]), c.In[2].I32(), last(c.In[0]), last(c.In[2])
	dw := make([]float64, len(slot))
	for i, s := range slot {
		if s >= 0 && int(s) < c.In[1].Shape[0] {
			dw[i] = dot(dy[i/k*d:(i/k+1)*d], x[int(s)*d:int(s+1)*d])
		}
	}
	store(c.Out[0], dw)
}

// counted are the rows [from, to) that sequences have, of so many from the I[2]-th on.
func counted(c *kernels.Call, cu []int32, rows int) (from, to int) {
	first := c.Attr.I[2]
	from = min(max(0, int(cu[0])-first), rows)
	return from, min(max(from, int(cu[len(cu)-1])-first), rows)
}

func balanceSums(c *kernels.Call) {
	logits, e := c.In[0].F32(), last(c.In[0])
	from, to := counted(c, c.In[1].I32(), c.In[0].Rows())
	sums, w := make([]float64, 2*e), routing.Router{Score: routing.Score(c.Attr.I[1])}.Worker(e)
	for i := from; i < to; i++ {
		shares, best := w.Shares(logits[i*e:(i+1)*e], c.Attr.I[0])
		for _, j := range best {
			sums[j]++
		}
		for j, s := range shares {
			sums[e+j] += s
		}
	}
	store(c.Out[0], sums)
}

func balanceSumsBwd(c *kernels.Call) {
	ds, logits, e := load(c.In[0]), c.In[1].F32(), last(c.In[1])
	from, to := counted(c, c.In[2].I32(), c.In[1].Rows())
	out, w := c.Out[0].F32(), routing.Router{Score: routing.Score(c.Attr.I[1])}.Worker(e)
	clear(out)
	for i := from; i < to; i++ {
		w.SharesGradient(logits[i*e:(i+1)*e], ds[e:], out[i*e:(i+1)*e])
	}
}

// perPair is what balance_loss multiplies each pair of sums with.
func perPair(c *kernels.Call, sums []float64) float64 {
	n := 0.0
	for _, x := range sums[:len(sums)/2] {
		n += x / float64(c.Attr.I[0])
	}
	if n == 0 {
		return 0
	}
	return c.Attr.F[0] / (n * n)
}

func balanceLoss(c *kernels.Call) {
	sums := load(c.In[0])
	e := len(sums) / 2
	store(c.Out[0], []float64{perPair(c, sums) * dot(sums[:e], sums[e:])})
}

func balanceLossBwd(c *kernels.Call) {
	seed, sums := load(c.In[0])[0], load(c.In[1])
	e, by := len(sums)/2, perPair(c, sums)
	out := make([]float64, 2*e)
	for i := range e {
		out[e+i] = seed * by * sums[i]
	}
	store(c.Out[0], out)
}
