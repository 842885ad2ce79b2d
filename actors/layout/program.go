package layout

import (
	"fmt"

	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
)

// program is the job's own, if it is given and right for the shape, or its schedule's.
func (j *Design) program(shape schedule.Shape) (*plan.Program, error) {
	p := j.Program
	if p == nil {
		return schedule.Build(j.Schedule, shape)
	}
	if len(p.Rows) != shape.Ranks || p.Micro != shape.Micro || len(p.StageRank) != shape.Ranks*shape.Loops {
		return nil, fmt.Errorf("the program has %d ranks, %d stages and %d microbatches, the plan %d, "+
			"%d and %d: set plan.pp, plan.virtual_stages and train.global_batch",
			len(p.Rows), len(p.StageRank), p.Micro, shape.Ranks, shape.Ranks*shape.Loops, shape.Micro)
	}
	return p, p.Check()
}

// follow builds the program again for a schedule whose order follows what stages cost, now that their traces
// tell: a head is as much work as several layers, and a rank before it has time for other things. Costs are in
// floating-point operations, so that the program is the same on every machine. How many microbatches are between
// forward and backward is known with the program only, so a loss keeps nothing there (options).
func (l *Layout) follow(shape schedule.Shape) error {
	j := l.Design
	if !l.follows() {
		return nil
	}
	costs, n := l.costs(), len(j.Parts)
	shape.Costs = &plan.Costs{F: costs.F[n:], I: costs.I[n:], W: costs.W[n:]}
	p, err := schedule.Build(j.Schedule, shape)
	if err != nil {
		return err
	}
	l.Program = p
	return nil
}

// follows reports whether the order of the program follows what stages cost, and is not given.
func (l *Layout) follows() bool {
	s, err := schedule.Get(l.Design.Schedule)
	return err == nil && s.Follows && l.Design.Program == nil && l.Design.Chunks <= 1
}
