package optim

import (
	"fmt"

	"github.com/lfactor/lfactor/configs/source"
)

// LR is a learning-rate schedule with Megatron-LM's rules (OptimizerParamScheduler), counted in steps: step
// n, from 1, uses the rate after n-1 steps, so that warm-up begins at WarmupInit.
// In the words of the field: LR warm-up.
type LR struct {
	Style      string // the name of a registered Rate
	Max, Min   float64
	WarmupInit float64
	Warmup     int64  // steps
	Decay      int64  // steps until Min
	WSDDecay   int64  // steps of the final decay of WSD
	WSDStyle   string // exponential, linear, cosine, minus_sqrt
}

// Rate is the shape of a learning-rate schedule behind its warm-up, which all share.
type Rate struct {
	Name   string
	Source string // paper or program that it comes from
	// After is the rate when n steps are done, which are more than those of the warm-up; it ends at l.Min
	// after l.Decay steps unless the shape has no end.
	After func(l LR, n float64) float64
}

var rates = map[string]Rate{}

// RegisterRate adds a shape, which schedule.kind then takes. It is called when a package is loaded and
// returns true, so that it can stand in a variable's declaration; two of one name are a bug of the program.
func RegisterRate(r Rate) bool {
	if _, dup := rates[r.Name]; dup {
		panic("optim: schedule " + r.Name + " registered twice")
	}
	rates[r.Name] = r
	source.Offer(source.Rates, r.Name)
	return true
}

// Rates lists the names of the registered shapes in order.
func Rates() []string { return source.Offered(source.Rates) }

// At is the learning rate of a step, counted from 1.
func (l LR) At(step int64) float64 {
	n := float64(step - 1)
	if l.Warmup > 0 && step-1 <= l.Warmup {
		return l.WarmupInit + (l.Max-l.WarmupInit)*n/float64(l.Warmup)
	}
	return rates[l.Style].After(l, n)
}

// Check reports an unknown style.
func (l LR) Check() error {
	if _, ok := rates[l.Style]; ok {
		return nil
	}
	return fmt.Errorf("learning-rate schedule %q: unknown, have %v", l.Style, Rates())
}

// decaying is a shape that falls from Max to Min by a coefficient from 1 to 0 and stays there.
func decaying(coefficient func(l LR, n float64) float64) func(LR, float64) float64 {
	return func(l LR, n float64) float64 {
		if n > float64(l.Decay) {
			return l.Min
		}
		return l.Min + coefficient(l, n)*(l.Max-l.Min)
	}
}

// done is the share of the decay's steps that n steps are.
func (l LR) done(n float64) float64 {
	return (n - float64(l.Warmup)) / float64(max(1, l.Decay-l.Warmup))
}
