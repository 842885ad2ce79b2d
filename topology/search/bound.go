package search

import (
	"cmp"
	"slices"

	"github.com/lfactor/lfactor/pipeline/schedule"
)

// A large space has tens of thousands of variants, and recording one takes milliseconds. This file says of a
// plan what it takes at least, from few variants: those of one microbatch of many sequences, whose calls and
// latencies weigh least. Plans are then priced in the order of that bound, until as many as are wanted are
// faster than any plan that is left can be.

// slack is the share of its bound's parts that a plan takes at least: a schedule that keeps logits saves a
// product, and a pass that is cut in two records other frees.
const slack = 0.93

// mostRows is how many tokens a microbatch of a base variant has at most.
const mostRows = 1 << 16

// base is the variant by which plans are bounded that share its degrees.
func (s *Space) base(v Variant) Variant {
	v.Split, v.Single, v.Zero, v.DP, v.Recompute, v.Overlap = false, false, 0, 0, "none", exchanging(v)
	if v.CP <= 1 {
		v.Batch = max(1, mostRows/max(1, s.Rows))
	}
	return v
}

// exchanging reports whether ranks exchange anything within the passes of a variant, which overlap may hide.
func exchanging(v Variant) bool { return v.TP > 1 || v.CP > 1 || v.EP*v.ETP > 1 || v.Zero >= 2 }

// Bases are the variants that bounds of candidates are made of, each once.
func (s *Space) Bases(all []Candidate) (out []Variant) {
	seen := map[Variant]bool{}
	for _, v := range s.Variants(all) {
		if b := s.base(v); !seen[b] {
			seen[b] = true
			out = append(out, b)
		}
	}
	return
}

// total is what all blocks of a base variant take for one sequence.
type total struct {
	f, i       float64
	again      float64 // of f, what layers take, which may be computed again
	held, port float64 // bytes that stay without recomputation, and that stay with
	params     Weights
	err        error
}

// Bounds gives every candidate a step and a memory that it is not below, and marks it as unpriced.
func (s *Space) Bounds(all []Candidate) error {
	totals, live := map[Variant]*total{}, map[liveKey]float64{}
	of := func(b Variant) *total {
		t := totals[b]
		if t == nil {
			t = &total{}
			totals[b] = t
			blocks, err := s.Profile(b)
			t.err = err
			for j, x := range blocks {
				n := float64(b.Batch)
				if first := s.embed() + 1; first <= j && j < first+s.Layers {
					t.again += x.F / n
				}
				t.f, t.i = t.f+x.F/n, t.i+x.I/n
				t.held, t.port = t.held+float64(x.Held)/n, t.port+float64(x.Port)/n
				t.params.Params, t.params.Experts = t.params.Params+x.Params, t.params.Experts+x.Experts
			}
		}
		return t
	}
	for i := range all {
		c := &all[i]
		p := s.place(c.Schedule, c.PP, c.Loops)
		v := s.variant(c, p)
		t := of(s.base(v))
		if t.err != nil {
			return t.err
		}
		s.bound(c, p, t, live)
	}
	return nil
}

// liveKey is what the mean of live activations over ranks depends on.
type liveKey struct {
	p     *place
	micro int
}

// bound fills in what a candidate takes at least if its stages are all alike.
func (s *Space) bound(c *Candidate, p *place, t *total, live map[liveKey]float64) {
	shape := schedule.Shape{Ranks: c.PP, Micro: c.Micro, Loops: c.Loops}
	per := slack * float64(c.Batch) / float64(c.PP)
	u, stays := schedule.Unit{F: per * t.f, I: per * t.i / 2, W: per * t.i / 2}, t.held
	switch c.Recompute {
	case "full":
		u.I, stays = u.I+0.9*per*t.again, t.port // sums at the end of a pass are not repeated
	case "selective":
		stays = t.port
	}
	key := liveKey{p, c.Micro}
	held, ok := live[key]
	if !ok {
		for r := range c.PP {
			held += float64(p.s.Live(shape, r)) / 2 / float64(c.PP)
		}
		live[key] = held
	}
	w := Weights{Params: t.params.Params / int64(c.PP), Experts: t.params.Experts / int64(c.PP)}
	step := max(p.s.Time(shape, u), float64(c.Micro)*(u.F+u.I+u.W))
	c.Step, c.Simulated, c.Unpriced = step, 0, true
	c.Memory = int64(slack * (float64(s.Base(c, w)) + held*per*stays/float64(max(1, c.Loops))))
	c.Bubble = max(0, 1-float64(c.Micro)*(u.F+u.I+u.W)/step)
	if c.Why = ""; s.Limit > 0 && c.Memory > s.Limit {
		c.Why = "memory"
	}
}

// Price estimates candidates exactly, in the order of their bounds, until no plan that is left can be among
// the fastest so many. Exact estimates those that it is given. All are left in the order in which [Rank] puts
// them; where none fits, those of least memory are estimated.
func (s *Space) Price(all []Candidate, most int, exact func([]Candidate) error) error {
	Rank(all)
	kept, fit := 0, len(all)
	for i := range all {
		if all[i].Why != "" {
			fit = i
			break
		}
	}
	for part := 2 * most; kept < fit; {
		to := min(kept+part, fit)
		if err := exact(all[kept:to]); err != nil {
			return err
		}
		kept = to
		Rank(all[:kept])
		if kept >= most && kept < fit && all[most-1].Why == "" && all[most-1].Step <= all[kept].Step {
			break
		}
	}
	if kept == 0 || all[0].Why != "" {
		least := all[kept:]
		slices.SortStableFunc(least, func(a, b Candidate) int { return cmp.Compare(a.Memory, b.Memory) })
		if err := exact(least[:min(most, len(least))]); err != nil {
			return err
		}
	}
	Rank(all)
	return nil
}

// WithOverlap estimates a candidate with exchanges that travel behind other work too, and keeps that where it
// fits and is faster, or where only that fits.
func (s *Space) WithOverlap(c *Candidate) error {
	p := s.place(c.Schedule, c.PP, c.Loops)
	if s.Tower != nil || p == nil || !exchanging(s.variant(c, p)) {
		return nil
	}
	x := *c
	x.Overlap, x.Why, x.Layers = true, "", s.uneven(c.PP*c.Loops)
	if err := s.Estimate(&x); err != nil {
		return err
	}
	if err := s.Recut(&x); err != nil {
		return err
	}
	if x.Why == "" && (c.Why != "" || x.Step < (1-least)*c.Step) {
		*c = x
	}
	return nil
}

// least is the share of a step that overlap gains where it is taken: it holds more in memory.
const least = 1e-3

// Overlapped lists candidates of which exchanges travel behind other work, for their variants.
func (s *Space) Overlapped(all []Candidate) (out []Candidate) {
	for _, c := range all {
		p := s.place(c.Schedule, c.PP, c.Loops)
		if s.Tower == nil && p != nil && exchanging(s.variant(&c, p)) {
			c.Overlap = true
			out = append(out, c)
		}
	}
	return
}
