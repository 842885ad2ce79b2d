package planner

import (
	"context"

	"github.com/lfactor/lfactor/topology/search"
)

// Closed forms and the simulation of one rank for each stage take exchanges inside passes as part of their
// time. The best plans are tried with microbatches that overlap, so that exchanges travel behind another
// microbatch's computation, in full: what hides how much depends on all segments.

// pairedMost is how many of the best plans are tried so.
const pairedMost = 4

// pairs are the schedules that can put a forward beside a backward and do not always do so.
var pairs = map[string]bool{"1f1b": true, "interleaved": true}

// paired lists plans with microbatches that overlap that are faster than the best of those without, where
// they fit. Plans of more ranks than are laid out in full have none.
func (p *Search) paired(ctx context.Context, all []search.Candidate) (more []search.Candidate, err error) {
	seen := 0
	for i := range all {
		c := &all[i]
		exchanges := c.TP*max(1, c.CP)*max(1, c.EP)*max(1, c.ETP) > 1 || c.Zero > 1
		if c.Why != "" || !exchanges || !pairs[c.Schedule] || c.Encoder.Over != "" || c.Micro <= 2*c.PP {
			continue
		}
		if seen++; seen > pairedMost {
			break
		}
		x := *c
		x.Pairs = true
		l, err := p.laidOut(&x)
		if err != nil || l == nil {
			return more, err
		}
		if x.Memory = worst(l); x.Memory > p.Space.Limit {
			continue
		}
		was, _, err := p.twin(ctx, c)
		if err != nil && !tooLarge(err) {
			return nil, err
		}
		now, bubble, late := p.twin(ctx, &x)
		if late != nil && !tooLarge(late) {
			return nil, late
		}
		if err != nil || late != nil {
			continue
		}
		x.Simulated *= now / was
		if x.Bubble = bubble; now < was {
			more = append(more, x)
		}
	}
	return more, nil
}

// twin is the step of a plan, with all segments of all its ranks, and its bubble. Replicas do the same at the
// same time, so few of them are simulated; and from some rounds of a pipeline on each further microbatch
// takes the same time, so that two short steps say how long one of many microbatches is.
func (p *Search) twin(ctx context.Context, c *search.Candidate) (step, bubble float64, err error) {
	x := *c
	for d := 1; d < c.DP; d++ {
		ranks := d * max(1, c.CP) * c.TP
		if c.DP%d == 0 && ranks%max(1, c.EP*c.ETP) == 0 && (d > 1 || c.Zero == 0) &&
			(c.Groups == 0 || d%c.Groups == 0 && d > c.Groups) {
			x.DP = d
			break
		}
	}
	const short, long = 4, 6 // rounds
	if c.Micro <= long*c.PP {
		s, err := p.rehearsed(ctx, &x)
		if err != nil {
			return 0, 0, err
		}
		return s.Step, idle(s), nil
	}
	var steps [2]float64
	for i, rounds := range []int{short, long} {
		x.Micro = rounds * c.PP
		s, err := p.rehearsed(ctx, &x)
		if err != nil {
			return 0, 0, err
		}
		steps[i], bubble = s.Step, idle(s)
	}
	each := (steps[1] - steps[0]) / float64((long-short)*c.PP)
	step = steps[1] + each*float64(c.Micro-long*c.PP)
	return step, bubble * steps[1] / step, nil
}
