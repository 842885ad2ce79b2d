package search

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
)

// Found is the best program of a search.
type Found struct {
	Program *plan.Program
	Name    string // of the schedule, or of the policy
	Time    float64
}

// Schedule returns the program of one stage a rank with the shortest longest stage (schedule.Longest) or makespan under
// the shape's costs and its Memory. It is never worse than the best registered schedule that keeps within the memory.
func Schedule(s schedule.Shape, of schedule.Measure) (Found, error) {
	best, err := Registered(s, of)
	if s.Costs == nil || s.Ranks < 2 {
		return best, err
	}
	limit := 2 * s.Micro
	if s.Memory > 0 {
		limit = min(limit, int(2*s.Memory))
	}
	for _, p := range policies {
		prog := run(s, p, limit)
		if prog == nil || prog.Check() != nil {
			continue
		}
		if x := length(prog, s, of, limit); x < best.Time {
			best = Found{prog, p.String(), x}
		}
	}
	if best.Program == nil {
		return best, fmt.Errorf("search: no schedule of %d ranks and %d microbatches fits into %g "+
			"activations: %w", s.Ranks, s.Micro, s.Memory, err)
	}
	return best, nil
}

// Registered is the best of the schedules of pipeline/schedule that take one stage a rank and keep within the memory.
func Registered(s schedule.Shape, of schedule.Measure) (Found, error) {
	best, fault := Found{Time: math.Inf(1)}, error(nil)
	limit := 2 * s.Micro
	if s.Memory > 0 {
		limit = int(2 * s.Memory)
	}
	s.Loops = 1
	for _, name := range schedule.Names() {
		p, err := schedule.Build(name, s)
		if err != nil {
			fault = err
			continue
		}
		if x := length(p, s, of, limit); x < best.Time {
			best = Found{p, name, x}
		}
	}
	if best.Program == nil {
		return best, fmt.Errorf("search: no registered schedule fits: %w", fault)
	}
	return best, nil
}

// length is a program's time, infinite if a rank holds more than limit half activations.
func length(p *plan.Program, s schedule.Shape, of schedule.Measure, limit int) float64 {
	c := plan.Costs{}
	if s.Costs != nil {
		c = *s.Costs
	}
	t, err := p.Evaluate(c)
	if err != nil {
		return math.Inf(1)
	}
	for _, x := range t.Peak {
		if x > limit {
			return math.Inf(1)
		}
	}
	if of == schedule.Longest {
		return t.Longest
	}
	return t.Makespan
}
