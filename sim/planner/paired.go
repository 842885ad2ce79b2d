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
		was, err := p.rehearsed(ctx, c)
		if err != nil && !tooLarge(err) {
			return nil, err
		}
		now, late := p.rehearsed(ctx, &x)
		if late != nil && !tooLarge(late) {
			return nil, late
		}
		if err != nil || late != nil {
			continue
		}
		x.Simulated *= now.Step / was.Step
		if x.Bubble = idle(now); now.Step < was.Step {
			more = append(more, x)
		}
	}
	return more, nil
}
