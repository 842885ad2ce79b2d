package pack

import (
	"errors"
	"math"
)

// Cost is the work of a sample of l tokens, a·l² + b·l + c, in milliseconds or any unit.
type Cost struct{ A, B, C float64 }

// Of returns the cost of a sample of some tokens.
func (c Cost) Of(tokens int) float64 {
	l := float64(tokens)
	return c.A*l*l + c.B*l + c.C
}

// ModelCost is the cost in floating-point operations of a decoder layer of a hidden size, up to a factor:
// 24·h²·l for its matrices and 2·h·l² for causal attention.
func ModelCost(hidden int) Cost {
	h := float64(hidden)
	return Cost{A: 2 * h, B: 24 * h * h}
}

// RankWork is what a rank did in one step: sums over its samples.
type RankWork struct {
	Squares float64 // of the lengths
	Tokens  float64
	Samples float64
}

// Add counts a sample of some tokens.
func (w *RankWork) Add(tokens int) {
	l := float64(tokens)
	w.Squares, w.Tokens, w.Samples = w.Squares+l*l, w.Tokens+l, w.Samples+1
}

// Observed is a step of the warm-up: what each rank did, and how long the step took.
type Observed struct {
	Ranks        []RankWork
	Milliseconds float64
}

const (
	fitSharpness = 20 // of the soft maximum over ranks, in parts of the largest
	fitRounds    = 100
)

// Fit finds the cost whose largest sum over ranks agrees best with the times of some steps, with no coefficient below
// 0: LoongForge's warm-up fit. The largest is softened, since several ranks may be nearly the slowest; each round fits
// the steps to the ranks that were slowest by the cost of the round before. At least three steps are needed.
func Fit(steps []Observed) (Cost, error) {
	if len(steps) < 3 {
		return Cost{}, errors.New("fit of the balance cost: at least three steps are needed")
	}
	c := Cost{B: 1}
	for range fitRounds {
		rows := make([]RankWork, len(steps))
		for i, s := range steps {
			rows[i] = slowest(s.Ranks, c)
		}
		next := leastSquares(rows, steps)
		if next == c {
			break
		}
		c = next
	}
	if c == (Cost{}) {
		return c, errors.New("fit of the balance cost: the times do not grow with the work; measure more steps")
	}
	return c, nil
}

// slowest is the mean of the ranks' work, weighted by how near each is to the slowest.
func slowest(ranks []RankWork, c Cost) (out RankWork) {
	most := 0.0
	for _, w := range ranks {
		most = max(most, c.work(w))
	}
	sum := 0.0
	for _, w := range ranks {
		e := math.Exp(fitSharpness * (c.work(w) - most) / max(most, math.SmallestNonzeroFloat64))
		out.Squares, out.Tokens, out.Samples = out.Squares+e*w.Squares, out.Tokens+e*w.Tokens, out.Samples+e*w.Samples
		sum += e
	}
	return RankWork{out.Squares / sum, out.Tokens / sum, out.Samples / sum}
}

func (c Cost) work(w RankWork) float64 { return c.A*w.Squares + c.B*w.Tokens + c.C*w.Samples }

// leastSquares fits the times with coefficients of at least 0: of all choices of those that are not 0, the
// one with the least error whose solution is not negative.
func leastSquares(rows []RankWork, steps []Observed) (best Cost) {
	least := math.Inf(1)
	for mask := range 8 {
		x, ok := solve(rows, steps, mask)
		if !ok {
			continue
		}
		c := Cost{x[0], x[1], x[2]}
		e := 0.0
		for i, w := range rows {
			d := c.work(w) - steps[i].Milliseconds
			e += d * d
		}
		if e < least {
			least, best = e, c
		}
	}
	return best
}

// solve solves the normal equations in the coefficients of a mask, each scaled to 1, by Gauss's method.
func solve(rows []RankWork, steps []Observed, mask int) (x [3]float64, ok bool) {
	var scale [3]float64
	for _, w := range rows {
		for k, v := range [3]float64{w.Squares, w.Tokens, w.Samples} {
			scale[k] = max(scale[k], math.Abs(v))
		}
	}
	var m [3][4]float64
	for i, w := range rows {
		v := [3]float64{w.Squares, w.Tokens, w.Samples}
		for a := range 3 {
			for b := range 3 {
				m[a][b] += v[a] / scale[a] * v[b] / scale[b]
			}
			m[a][3] += v[a] / scale[a] * steps[i].Milliseconds
		}
	}
	for k := range 3 {
		if mask>>k&1 == 0 || scale[k] == 0 {
			m[k] = [4]float64{}
			for a := range 3 {
				m[a][k] = 0
			}
			m[k][k] = 1
		}
	}
	for k := range 3 {
		p := k
		for a := k + 1; a < 3; a++ {
			if math.Abs(m[a][k]) > math.Abs(m[p][k]) {
				p = a
			}
		}
		m[k], m[p] = m[p], m[k]
		if math.Abs(m[k][k]) < 1e-9 {
			return x, false
		}
		for a := k + 1; a < 3; a++ {
			f := m[a][k] / m[k][k]
			for b := k; b < 4; b++ {
				m[a][b] -= f * m[k][b]
			}
		}
	}
	for k := 2; k >= 0; k-- {
		x[k] = m[k][3]
		for b := k + 1; b < 3; b++ {
			x[k] -= m[k][b] * x[b]
		}
		x[k] /= m[k][k]
	}
	for k := range x {
		if x[k] < 0 || math.IsNaN(x[k]) {
			return x, false
		}
		if scale[k] > 0 {
			x[k] /= scale[k]
		}
	}
	return x, true
}
