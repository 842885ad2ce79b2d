package planner

import (
	"fmt"

	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology/search"
)

// Explain takes a step of a plan apart, of all its ranks, and of so many of its microbatches: of many more than ranks of
// the pipeline those that follow are like those before.
func (p *Search) Explain(c *search.Candidate) (x *rehearsal.Explanation, micro int, err error) {
	micro = min(c.Micro, 4*c.PP)
	cfg, err := p.config(append(p.Settings(c), fmt.Sprintf("train.global_batch=%d", c.DP*c.Batch*micro))...)
	if err != nil {
		return nil, 0, err
	}
	r, err := rehearsal.New(cfg, rehearsal.Options{Machine: p.Machine})
	if err != nil {
		return nil, 0, err
	}
	x, err = r.Explain(sim.Options{Fold: true})
	return x, micro, err
}
