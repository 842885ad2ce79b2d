package ref

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// The operations of mixtures of experts.
func init() {
	for op, f := range map[kernels.Op]func(*kernels.Call){
		kernels.Route: route, kernels.RouteBwd: routeBwd, kernels.RouteOrder: routeOrder,
		kernels.Spread: spread, kernels.Mix: mixRows, kernels.MixDW: mixDW,
		kernels.BalanceSums: balanceSums, kernels.BalanceSumsBwd: balanceSumsBwd,
		kernels.BalanceLoss: balanceLoss, kernels.BalanceLossBwd: balanceLossBwd,
		kernels.BalanceEach: balanceEach, kernels.BalanceEachBwd: balanceEachBwd, kernels.Surplus: surplus,
		kernels.SignStep: signStep, kernels.ZLoss: zLoss, kernels.ZLossBwd: zLossBwd, kernels.Jitter: jitter,
		kernels.GateRows: gateRows, kernels.GateRowsBwd: gateRowsBwd, kernels.KindRows: kindRows,
		kernels.KindExperts: kindExperts, kernels.KindSurplus: kindSurplus,
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

// route sets the chosen experts of each row, in order of their scores, and their weights.
func route(c *kernels.Call) {
	logits, w, idx := c.In[0].F32(), c.Out[0].F32(), c.Out[1].I32()
	e, k := lastDim(c.In[0]), lastDim(c.Out[0])
	var bias []float32
	if b := at(c.In, 1); b != nil {
		bias = b.F32()
	}
	r := kernels.RouterOf(c.Attr).Worker(e)
	for i := range c.In[0].Rows() {
		r.Row(logits[i*e:(i+1)*e], bias, idx[i*k:(i+1)*k], w[i*k:(i+1)*k])
	}
}

// routeBwd is the gradient of the logits for the weights; the choice itself has none.
func routeBwd(c *kernels.Call) {
	dw, logits, idx, out := c.In[0].F32(), c.In[1].F32(), c.In[2].I32(), c.Out[0].F32()
	e, k := lastDim(c.In[1]), lastDim(c.In[0])
	r := kernels.RouterOf(c.Attr).Worker(e)
	for i := range c.In[1].Rows() {
		r.Gradient(logits[i*e:(i+1)*e], idx[i*k:(i+1)*k], dw[i*k:(i+1)*k], out[i*e:(i+1)*e])
	}
}

// routeOrder sets where each chosen row goes: rows by expert's place, in the order of tokens, without what
// is beyond an expert's capacity: the last ones, or with I[0] = 1 those of the least weights.
func routeOrder(c *kernels.Call) {
	idx, from, slot, counts := c.In[0].I32(), c.Out[0].I32(), c.Out[1].I32(), c.Out[2].I32()
	// which row goes where an expert lies: of the tokens that have chosen it, one in every so many
	goes := func(i, place int) bool { return int(idx[i]) == place }
	if p := at(c.In, 2); p != nil {
		experts, k := p.I32(), lastDim(c.In[0])
		goes = func(i, place int) bool {
			if idx[i] != experts[place] {
				return false
			}
			turn, copies := 0, 0
			for q, e := range experts {
				if e == experts[place] {
					if q < place {
						turn++
					}
					copies++
				}
			}
			return i/k%copies == turn
		}
	}
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
		for i := range idx {
			if goes(i, e) {
				rows = append(rows, i)
			}
		}
		if len(rows) > most && c.Attr.I[0] == 1 {
			w := c.In[1].F32()
			slices.SortStableFunc(rows, func(a, b int) int {
				return routing.Compare(float64(w[a]), float64(w[b]))
			})
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

// spread copies the row of each token to the places that its experts gave it.
func spread(c *kernels.Call) {
	x, from, d, k := load(c.In[0]), c.In[1].I32(), lastDim(c.In[0]), c.Attr.I[0]
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

// mixRows sets each token to the sum of its experts' rows times their weights, in the order of its choices.
// A choice that was dropped adds nothing.
func mixRows(c *kernels.Call) {
	x, slot, d, k := load(c.In[0]), c.In[1].I32(), lastDim(c.In[0]), lastDim(c.In[1])
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

// mixDW is the gradient of those weights: the product of the cotangent and the row.
func mixDW(c *kernels.Call) {
	dy, x, slot, d, k := load(c.In[0]), load(c.In[1]), c.In[2].I32(), lastDim(c.In[0]), lastDim(c.In[2])
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

// balanceSums adds up, by expert, how many rows chose it and what share of probability it got.
func balanceSums(c *kernels.Call) {
	logits, e := c.In[0].F32(), lastDim(c.In[0])
	from, to := counted(c, c.In[1].I32(), c.In[0].Rows())
	sums, w := make([]float64, 2*e), routing.Router{Score: routing.Score(c.Attr.I[1])}.Worker(e)
	w.Sums(logits[from*e:to*e], c.Attr.I[0], sums[:e], sums[e:])
	store(c.Out[0], sums)
}

// balanceSumsBwd is the gradient of the shares; counts have none.
func balanceSumsBwd(c *kernels.Call) {
	ds, logits, e := load(c.In[0]), c.In[1].F32(), lastDim(c.In[1])
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

// balanceLoss sets F[0]·Σ count·share / rows², the rows being the counts over the I[0] choices of each
// (arXiv:2101.03961); sums holds the counts and then the shares of all experts.
func balanceLoss(c *kernels.Call) {
	sums := load(c.In[0])
	e := len(sums) / 2
	store(c.Out[0], []float64{perPair(c, sums) * dot(sums[:e], sums[e:])})
}

// balanceLossBwd is its gradient for the shares.
func balanceLossBwd(c *kernels.Call) {
	seed, sums := load(c.In[0])[0], load(c.In[1])
	e, by := len(sums)/2, perPair(c, sums)
	out := make([]float64, 2*e)
	for i := range e {
		out[e+i] = seed * by * sums[i]
	}
	store(c.Out[0], out)
}

// sequences calls f for the rows of each sequence that has some, with their number.
func sequences(cu []int32, f func(from, to, count int)) {
	count := 0
	for i := range len(cu) - 1 {
		if cu[i+1] > cu[i] {
			count++
		}
	}
	for i := range len(cu) - 1 {
		if cu[i+1] > cu[i] {
			f(int(cu[i]), int(cu[i+1]), count)
		}
	}
}

// balanceEach is that loss for each sequence by itself, and their mean.
func balanceEach(c *kernels.Call) {
	logits, e, k := c.In[0].F32(), lastDim(c.In[0]), float64(c.Attr.I[0])
	w, loss := routing.Router{Score: routing.Score(c.Attr.I[1])}.Worker(e), 0.0
	sequences(c.In[1].I32(), func(from, to, count int) {
		n, p := make([]float64, e), make([]float64, e)
		w.Sums(logits[from*e:to*e], int(k), n, p)
		rows := float64(to - from)
		loss += c.Attr.F[0] * dot(n, p) / (rows * rows * float64(count))
	})
	store(c.Out[0], []float64{loss})
}

// balanceEachBwd is its gradient for the probabilities.
func balanceEachBwd(c *kernels.Call) {
	seed, logits, e, out := float64(c.In[0].F32()[0]), c.In[1].F32(), lastDim(c.In[1]), c.Out[0].F32()
	w := routing.Router{Score: routing.Score(c.Attr.I[1])}.Worker(e)
	clear(out)
	sequences(c.In[2].I32(), func(from, to, count int) {
		n, p := make([]float64, e), make([]float64, e)
		w.Sums(logits[from*e:to*e], c.Attr.I[0], n, p)
		rows := float64(to - from)
		for j := range n {
			n[j] *= seed * c.Attr.F[0] / (rows * rows * float64(count))
		}
		for i := from; i < to; i++ {
			w.SharesGradient(logits[i*e:(i+1)*e], n, out[i*e:(i+1)*e])
		}
	})
}

// surplus sets each expert's rows less the mean of all: what the bias of a router is moved by.
func surplus(c *kernels.Call) {
	idx, k := c.In[0].I32(), lastDim(c.In[0])
	from, to := counted(c, c.In[1].I32(), c.In[0].Rows())
	n := make([]float64, c.Out[0].Len())
	for _, e := range idx[from*k : to*k] {
		n[e]++
	}
	for i := range n {
		n[i] -= float64((to-from)*k) / float64(len(n))
	}
	storeOrAdd(c.Out[0], n, c.Attr.I[0])
}

// signStep moves each number by F[0] against the sign of its gradient (arXiv:2408.15664). A gradient that
// is not a number makes the number one as well.
func signStep(c *kernels.Call) {
	g, p := load(c.In[0]), load(c.Out[0])
	if c.In[1].F64()[kernels.ClipOverflow] == 1 {
		return
	}
	for i, x := range g {
		switch {
		case x > 0:
			p[i] -= c.Attr.F[0]
		case x < 0:
			p[i] += c.Attr.F[0]
		case x != x:
			p[i] = x
		}
	}
	store(c.Out[0], p)
}

// zLoss sets F[0] times the mean of (log Σ exp(logits))² over the rows of sequences (arXiv:2202.08906).
func zLoss(c *kernels.Call) {
	logits, e, cu, sum := c.In[0].F32(), lastDim(c.In[0]), c.In[1].I32(), 0.0
	from, to := counted(c, cu, c.In[0].Rows())
	for i := from; i < to; i++ {
		z := routing.LogSum(make([]float64, e), logits[i*e:(i+1)*e])
		sum += z * z
	}
	store(c.Out[0], []float64{c.Attr.F[0] * sum / max(1, float64(cu[len(cu)-1]-cu[0]))})
}

// zLossBwd is its gradient: seed·F[0]·2·lse·softmax(logits)/rows.
func zLossBwd(c *kernels.Call) {
	seed, logits, e, cu := float64(c.In[0].F32()[0]), c.In[1].F32(), lastDim(c.In[1]), c.In[2].I32()
	out, by := make([]float64, len(logits)), seed*c.Attr.F[0]/max(1, float64(cu[len(cu)-1]-cu[0]))
	from, to := counted(c, cu, c.In[1].Rows())
	for i := from; i < to; i++ {
		row := out[i*e : (i+1)*e]
		z := routing.LogSum(row, logits[i*e:(i+1)*e])
		for j := range row {
			row[j] *= 2 * z * by
		}
	}
	store(c.Out[0], out)
}

// jitter multiplies each number by 1 plus a chance within ±F[0], a hash of the row's key and the place.
func jitter(c *kernels.Call) {
	x, key, d := load(c.In[0]), c.In[1].I64(), lastDim(c.In[0])
	for i := range x {
		seed := kernels.SplitMix(uint64(key[i/d]) + (uint64(c.Attr.I[0])+1)*kernels.Golden)
		u := float64(kernels.SplitMix(seed+uint64(i%d)*kernels.Golden)>>40) / (1 << 24)
		x[i] *= 1 + c.Attr.F[0]*(2*u-1)
	}
	store(c.Out[0], x)
}

// gateRows multiplies each row by the sigmoid of its gate.
func gateRows(c *kernels.Call) {
	x, z, d := load(c.In[0]), load(c.In[1]), lastDim(c.In[0])
	for i := range x {
		x[i] *= sigmoid(z[i/d])
	}
	store(c.Out[0], x)
}

// gateRowsBwd is its gradient for rows and gates.
func gateRowsBwd(c *kernels.Call) {
	dy, x, z, d := load(c.In[0]), load(c.In[1]), load(c.In[2]), lastDim(c.In[0])
	dz := make([]float64, len(z))
	for i, v := range z {
		s, g := sigmoid(v), dy[i*d:(i+1)*d]
		dz[i] = s * (1 - s) * dot(g, x[i*d:(i+1)*d])
		for j := range g {
			g[j] *= s
		}
	}
	store(c.Out[0], dy)
	store(c.Out[1], dz)
}

// kindRows keeps the rows whose token is of the kind I[0], texts or images, and sets the others to 0.
func kindRows(c *kernels.Call) {
	x := load(c.In[0])
	for i := range x {
		if c.In[1].I32()[i/lastDim(c.In[0])] != int32(c.Attr.I[0]) {
			x[i] = 0
		}
	}
	store(c.Out[0], x)
}

// kindExperts keeps the choices of tokens of the kind I[0]; the choices of the others become −1, no expert.
func kindExperts(c *kernels.Call) {
	idx, kind, own := c.In[0].I32(), c.In[1].I32(), c.Out[0].I32()
	for i, e := range idx {
		if own[i] = -1; kind[i/lastDim(c.In[0])] == int32(c.Attr.I[0]) {
			own[i] = e
		}
	}
}

// kindSurplus is surplus over the choices that kindExperts has kept.
func kindSurplus(c *kernels.Call) {
	n, all := make([]float64, c.Out[0].Len()), 0.0
	for _, e := range c.In[0].I32() {
		if e >= 0 {
			n[e]++
			all++
		}
	}
	for i := range n {
		n[i] -= all / float64(len(n))
	}
	storeOrAdd(c.Out[0], n, c.Attr.I[0])
}
