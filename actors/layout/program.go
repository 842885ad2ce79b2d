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
