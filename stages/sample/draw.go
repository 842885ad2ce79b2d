package sample

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Params says how tokens are drawn. A temperature below 1e-6, 0 among them, is greedy. Filters work in the order of
// transformers: penalties, bias, temperature, top-k, top-p, min-p.
// In the words of the field: logit bias.
type Params struct {
	Temperature float64
	TopK        int     // 0 is all; logits equal to the k-th stay
	TopP        float64 // nucleus: the least set of tokens with this probability; 0 or 1 is all
	MinP        float64 // tokens with this share of the likeliest one's probability; 0 is all
	// Repetition divides positive logits of tokens that the prompt or the answer has, and multiplies negative ones
	// (arXiv:1909.05858); 0 or 1 is none. Frequency times their number in the answer, and Presence once, are taken off.
	Repetition, Frequency, Presence float64
	Bias                            map[int32]float64 // added to logits
	Max                             int               // new tokens
	Seed                            uint64
	Stop                            []int32
	Least                           int       // tokens before one of Stop may be drawn
	Only                            []int32   // the tokens that may be drawn, nil for all
	Never                           [][]int32 // none of which an answer has in a row
}

// Check reports numbers that mean nothing.
func (p *Params) Check() error {
	switch {
	case !(p.Temperature >= 0) || math.IsInf(p.Temperature, 0):
		return fmt.Errorf("temperature is %g, and not 0 or more", p.Temperature)
	case !(p.TopP >= 0 && p.TopP <= 1):
		return fmt.Errorf("top_p is %g, and not between 0 and 1", p.TopP)
	case !(p.MinP >= 0 && p.MinP <= 1):
		return fmt.Errorf("min_p is %g, and not between 0 and 1", p.MinP)
	case p.TopK < 0:
		return fmt.Errorf("top_k is %d, and not 0 or more", p.TopK)
	case !(p.Repetition >= 0) || math.IsInf(p.Repetition, 0):
		return fmt.Errorf("repetition_penalty is %g, and not above 0", p.Repetition)
	case math.IsNaN(p.Frequency) || math.IsInf(p.Frequency, 0) || math.IsNaN(p.Presence) || math.IsInf(p.Presence, 0):
		return fmt.Errorf("a penalty is no number")
	case p.Max < 0:
		return fmt.Errorf("the number of new tokens is %d", p.Max)
	case p.Least < 0 || p.Least > p.Max:
		return fmt.Errorf("min_tokens is %d, and not from 0 to the %d of max_tokens", p.Least, p.Max)
	}
	return nil
}

// counts says which tokens a sequence has.
type counts struct {
	any    map[int32]bool // in prompt or answer
	answer map[int32]int
	order  []int32 // of the answer
}

// see adds tokens of the prompt or of the answer.
func (c *counts) see(ids []int32, prompt bool) {
	if c.any == nil {
		c.any, c.answer = map[int32]bool{}, map[int32]int{}
	}
	for _, id := range ids {
		c.any[id] = true
		if !prompt {
			c.answer[id]++
		}
	}
	if !prompt {
		c.order = append(c.order, ids...)
	}
}

// Uniform is the random number of a token, from 0 up to 1: it follows from the seed, the number of the
// sample and the token's place in the answer alone, whatever else is drawn.
func Uniform(seed uint64, sample, token int) float64 {
	x := mix64(mix64(mix64(seed+0x9e3779b97f4a7c15)+uint64(sample)*0x9e3779b97f4a7c15) +
		uint64(token)*0x9e3779b97f4a7c15)
	return float64(x>>11) / (1 << 53)
}

// mix64 is the finaliser of SplitMix64 (doi:10.1145/2714064.2660195).
func mix64(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// coldest is the least temperature that is drawn at: by less, logits are divided out of their numbers' range.
const coldest = 1e-6

// drawer has the scratch of drawing.
type drawer struct {
	z      []float64
	ids    []int32
	prob   []float64
	capped []float32 // logits under a soft cap
}

// plain reports whether the largest logit is what is drawn.
func (p *Params) plain() bool {
	return p.Temperature < coldest && (p.Repetition == 0 || p.Repetition == 1) && p.Frequency == 0 &&
		p.Presence == 0 && len(p.Bias) == 0 && !p.withholds()
}

// withholds reports whether some tokens may not be drawn.
func (p *Params) withholds() bool { return p.Least > 0 || p.Only != nil || len(p.Never) > 0 }

// withheld takes tokens away that may not come now, before all filters.
func (d *drawer) withheld(p *Params, c *counts) {
	none := math.Inf(-1)
	if p.Only != nil {
		keep := make([]float64, len(p.Only))
		for i, id := range p.Only {
			keep[i] = d.z[id]
		}
		for i := range d.z {
			d.z[i] = none
		}
		for i, id := range p.Only {
			d.z[id] = keep[i]
		}
	}
	if len(c.order) < p.Least {
		for _, id := range p.Stop {
			if id >= 0 && int(id) < len(d.z) {
				d.z[id] = none
			}
		}
	}
	for _, w := range p.Never {
		if n := len(w) - 1; n <= len(c.order) && slices.Equal(c.order[len(c.order)-n:], w[:n]) {
			d.z[w[n]] = none
		}
	}
}

// outside is a token of those that a request names, and of no vocabulary of so many; -1 for none.
func (p *Params) outside(vocab int) int32 {
	for _, l := range append([][]int32{p.Only, slices.Collect(maps.Keys(p.Bias))}, p.Never...) {
		for _, id := range l {
			if id < 0 || int(id) >= vocab {
				return id
			}
		}
	}
	return -1
}

// draw picks a token from logits: the largest, first of equals, where it is greedy; else the one at which the
// probabilities of those that the filters leave, in order of their numbers, add up to more than the share u.
func (d *drawer) draw(logits []float32, p *Params, c *counts, u float64) int32 {
	d.penalised(logits, p, c)
	return d.pick(p, u)
}

// guided is draw among the tokens that a guide allows, nil for all; it reports whether there are any.
func (d *drawer) guided(logits []float32, p *Params, c *counts, g Guide, u float64) (int32, bool) {
	d.penalised(logits, p, c)
	if g != nil && !d.masked(g, p.Stop) {
		return 0, false
	}
	if p.withholds() && !slices.ContainsFunc(d.z, func(x float64) bool { return x > math.Inf(-1) }) {
		return 0, false
	}
	return d.pick(p, u), true
}

// masked takes tokens away that a guide does not allow, before all filters, and reports whether any is left.
func (d *drawer) masked(g Guide, stop []int32) bool {
	allowed, none := g.Allowed(), math.Inf(-1)
	end := make([]float64, len(stop))
	for i, id := range stop {
		if end[i] = none; g.Ends() && int(id) < len(d.z) && id >= 0 {
			end[i] = d.z[id]
		}
	}
	for i := range d.z {
		if i/64 >= len(allowed) || allowed[i/64]>>(i%64)&1 == 0 {
			d.z[i] = none
		}
	}
	for i, id := range stop {
		if int(id) < len(d.z) && id >= 0 {
			d.z[id] = end[i]
		}
	}
	return slices.ContainsFunc(d.z, func(x float64) bool { return x > none })
}

// pick draws from penalised logits. Where they are so large that no probabilities follow, the largest is drawn.
func (d *drawer) pick(p *Params, u float64) int32 {
	best, top := int32(0), math.Inf(-1)
	for i, x := range d.z {
		if x > top {
			best, top = int32(i), x
		}
	}
	if p.Temperature < coldest {
		return best
	}
	sum := d.filtered(p)
	if !(sum > 0) { // or NaN
		return best
	}
	u *= sum
	for i, id := range d.ids {
		if u -= d.prob[i]; u < 0 {
			return id
		}
	}
	return d.ids[len(d.ids)-1]
}

// penalised sets z to the logits under penalties and bias.
func (d *drawer) penalised(logits []float32, p *Params, c *counts) {
	d.z = slices.Grow(d.z[:0], len(logits))[:len(logits)]
	for i, x := range logits {
		d.z[i] = float64(x)
	}
	if p.Repetition != 0 && p.Repetition != 1 {
		for id := range c.any { // each by itself: the order does not matter
			if z := &d.z[id]; *z > 0 {
				*z /= p.Repetition
			} else {
				*z *= p.Repetition
			}
		}
	}
	if p.Frequency != 0 || p.Presence != 0 {
		for id, n := range c.answer {
			d.z[id] -= p.Frequency*float64(n) + p.Presence
		}
	}
	for id, b := range p.Bias {
		d.z[id] += b
	}
	if p.withholds() {
		d.withheld(p, c)
	}
}

// filtered sets ids and prob to the tokens that the filters leave and what their probabilities are in
// proportion to, in order of their numbers, and returns the sum.
func (d *drawer) filtered(p *Params) (sum float64) {
	n := len(d.z)
	for i := range d.z {
		d.z[i] /= p.Temperature
	}
	least := math.Inf(-1)
	if p.TopK > 0 && p.TopK < n {
		least = kth(d.z, p.TopK)
	}
	top := slices.Max(d.z)
	d.ids, d.prob = d.ids[:0], d.prob[:0]
	for i, z := range d.z {
		if z >= least && z > math.Inf(-1) { // no guide has taken it away
			e := math.Exp(z - top)
			d.ids, d.prob = append(d.ids, int32(i)), append(d.prob, e)
			sum += e
		}
	}
	if p.TopP > 0 && p.TopP < 1 {
		sum = d.nucleus(p.TopP, sum)
	}
	if p.MinP > 0 {
		sum = d.keep(func(e float64, _ int32) bool { return e >= p.MinP })
	}
	return sum
}

// keep leaves the tokens for which f holds and returns the sum of what is left.
func (d *drawer) keep(f func(e float64, id int32) bool) (sum float64) {
	k := 0
	for i, e := range d.prob {
		if f(e, d.ids[i]) {
			d.ids[k], d.prob[k] = d.ids[i], e
			k++
			sum += e
		}
	}
	d.ids, d.prob = d.ids[:k], d.prob[:k]
	return sum
}

// nucleus leaves the least set of the likeliest tokens with probability p, the first of equals. What cannot be in it,
// since all such tokens together have less than the rest, is not sorted.
func (d *drawer) nucleus(p, sum float64) float64 {
	type token struct {
		e  float64
		id int32
	}
	low := (1 - p) * sum / float64(len(d.ids))
	var l []token
	for i, e := range d.prob {
		if e > low {
			l = append(l, token{e, d.ids[i]})
		}
	}
	slices.SortFunc(l, func(a, b token) int {
		switch {
		case a.e > b.e:
			return -1
		case a.e < b.e:
			return 1
		}
		return int(a.id - b.id)
	})
	acc, n := 0.0, 0
	for n < len(l) && (n == 0 || acc < p*sum) {
		acc += l[n].e
		n++
	}
	if n == 0 { // all are equal and unlikely: none is above the mean
		return sum
	}
	last := l[n-1]
	return d.keep(func(e float64, id int32) bool { return e > last.e || e == last.e && id <= last.id })
}

// kth is the k-th largest number.
func kth(z []float64, k int) float64 {
	s := slices.Clone(z)
	lo, hi := 0, len(s)-1
	for lo < hi {
		pivot, i, j := s[lo+(hi-lo)/2], lo, hi
		for i <= j {
			for s[i] > pivot {
				i++
			}
			for s[j] < pivot {
				j--
			}
			if i <= j {
				s[i], s[j] = s[j], s[i]
				i++
				j--
			}
		}
		switch {
		case k-1 <= j:
			hi = j
		case k-1 >= i:
			lo = i
		default:
			return s[k-1]
		}
	}
	return s[k-1]
}
