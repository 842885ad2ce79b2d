package optim

import (
	"fmt"
	"math"
)

// LR is a learning-rate schedule with Megatron-LM's rules (OptimizerParamScheduler), counted in steps: step n, from 1, uses
// the rate after n-1 steps, so that warm-up begins at WarmupInit.
type LR struct {
	Style      string // constant, linear, cosine, inverse-square-root, wsd
	Max, Min   float64
	WarmupInit float64
	Warmup     int64  // steps
	Decay      int64  // steps until Min
	WSDDecay   int64  // steps of the final decay of WSD
	WSDStyle   string // exponential, linear, cosine, minus_sqrt
}

// At is the learning rate of a step, counted from 1.
func (l LR) At(step int64) float64 {
	n := float64(step - 1)
	if l.Warmup > 0 && step-1 <= l.Warmup {
		return l.WarmupInit + (l.Max-l.WarmupInit)*n/float64(l.Warmup)
	}
	switch {
	case l.Style == "constant":
		return l.Max
	case step-1 > l.Decay:
		return l.Min
	case l.Style == "inverse-square-root":
		return max(l.Min, l.Max*math.Sqrt(float64(max(l.Warmup, 1)))/math.Sqrt(max(n, 1)))
	}
	return l.Min + l.coefficient(n)*(l.Max-l.Min)
}

func (l LR) coefficient(n float64) float64 {
	r := (n - float64(l.Warmup)) / float64(max(1, l.Decay-l.Warmup))
	switch l.Style {
	case "linear":
		return 1 - r
	case "cosine":
		return 0.5 * (math.Cos(math.Pi*r) + 1)
	}
	start := float64(l.Decay - l.WSDDecay)
	if n <= start {
		return 1
	}
	w := (n - start) / float64(max(1, l.WSDDecay))
	switch l.WSDStyle {
	case "linear":
		return 1 - w
	case "cosine":
		return 0.5 * (math.Cos(math.Pi*w) + 1)
	case "minus_sqrt":
		return 1 - math.Sqrt(w)
	}
	return 2*math.Pow(0.5, w) - 1
}

// Check reports an unknown style.
func (l LR) Check() error {
	switch l.Style {
	case "constant", "linear", "cosine", "inverse-square-root", "wsd":
		return nil
	}
	return fmt.Errorf("learning-rate schedule %q: unknown, have constant, linear, cosine, inverse-square-root, wsd", l.Style)
}
