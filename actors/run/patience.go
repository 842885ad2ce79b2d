package run

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/lfactor/lfactor/actors/run/record"
)

// patience ends a run whose evaluations have found no loss below the lowest before them, as many in a row as
// train.patience says. The coordinator asks it behind each, so that a run always ends behind the same step.
// In the words of the field: early stopping.
type patience struct {
	most  int
	delta float64
	seen  []record.Point // loss by step, of evaluations whose steps were not taken again since
	mu    sync.Mutex     // of seen
	text  string         // why the run ends, once it does
	over  atomic.Bool
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

// lossAt is what the evaluation of a step has found.
func (x *patience) lossAt(step int64) (loss float64, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.seen {
		if int64(e.X) == step {
			return e.Y, true
		}
	}
	return 0, false
}

// lowest is the evaluation with the lowest loss, the first of several alike.
func (x *patience) lowest() (step int64, loss float64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	loss = math.Inf(1)
	for _, e := range x.seen {
		if e.Y < loss {
			step, loss = int64(e.X), e.Y
		}
	}
	return step, loss
}

// tell says why the run ends, if it does. The coordinator, which is another goroutine, says nothing itself.
func (x *patience) tell(p *reporter) {
	if x.over.Load() {
		p.say("%s", x.text)
	}
}

// enough takes in an evaluation, and reports whether the run is to end behind it. Behind a lost process a
// run takes steps again, and their evaluations with them: one counts once.
func (x *patience) enough(step int64, loss float64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for n := len(x.seen); n > 0 && x.seen[n-1].X >= float64(step); n-- {
		x.seen = x.seen[:n-1]
	}
	x.seen = append(x.seen, record.Point{X: float64(step), Y: loss})
	best := x.seen[0]
	behind := 0
	for _, e := range x.seen[1:] {
		if behind++; e.Y < best.Y-x.delta || best.Y != best.Y { // anything is lower than a NaN
			best, behind = e, 0
		}
	}
	if x.most == 0 || behind < x.most {
		return false
	}
	if by := ""; !x.over.Load() {
		if x.delta > 0 {
			by = fmt.Sprintf(" by %g", x.delta)
		}
		x.text = fmt.Sprintf("the run ends: %d evaluations since step %.0f, whose loss is %.4f, have found none lower%s "+
			"(train.patience)", behind, best.X, best.Y, by)
		x.over.Store(true) // what is read behind it is written
	}
	return true
}
