package run

import (
	"fmt"
	"sync/atomic"
)

// patience ends a run whose evaluations have found no loss below the lowest before them, as many in a row as
// train.patience says. The coordinator asks it behind each, so that a run always ends behind the same step.
type patience struct {
	most   int
	delta  float64
	text   string  // why it ends, once it does
	at     int64   // step of the lowest loss
	lowest float64 // of evaluation at
	behind int     // evaluations since, of which none was lower
	over   atomic.Bool
}

// begin takes in the evaluations that a run has made before.
func (x *patience) begin(p *reporter) {
	t := &p.r.cfg.Run.Train
	x.most, x.delta = t.Patience, t.PatienceDelta
	for _, e := range p.evals {
		x.enough(int64(e.X), e.Y)
	}
	x.tell(p)
}

// tell says why the run ends, if it does. The coordinator, which is another goroutine, says nothing itself.
func (x *patience) tell(p *reporter) {
	if x.over.Load() {
		p.say("%s", x.text)
	}
}

// enough takes in an evaluation, and reports whether the run is to end behind it.
func (x *patience) enough(step int64, loss float64) bool {
	if x.at == 0 || loss < x.lowest-x.delta {
		x.at, x.lowest, x.behind = step, loss, 0
		return false
	}
	if x.behind++; x.most == 0 || x.behind < x.most {
		return false
	}
	if by := ""; !x.over.Load() {
		if x.delta > 0 {
			by = fmt.Sprintf(" by %g", x.delta)
		}
		x.text = fmt.Sprintf("the run ends: %d evaluations since step %d, whose loss is %.4f, have found none lower%s "+
			"(train.patience)", x.behind, x.at, x.lowest, by)
		x.over.Store(true) // what is read behind it is written
	}
	return true
}
