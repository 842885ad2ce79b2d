package optim

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Adafactor holds the hyper-parameters of the optimizer of that name.
type Adafactor struct {
	Power float64 // 1-β2 at update t is t^(-Power)
	Above float64 // root mean square that an update has at most, before rates
	Floor float64 // least root mean square of a parameter that steps are measured by
	Fixed bool    // steps are of the rate itself, neither measured by the parameter nor below 1/√t
}

// adafactor is one of its two kinds: of matrices, whose second moments are kept by rows and columns, and of
// all else, whose numbers have one each. Both want wholes: an update is held to a root mean square, and
// measured by that of the parameter.
func adafactor(o Optimizer, factored bool) Optimizer {
	o.Paper = "1804.04235"
	o.Hyper = func(c Config, lr float64, update int64, h []float64) {
		a, t := c.Adafactor, float64(update)
		h[kernels.HyperLR], h[kernels.HyperDecay], h[kernels.HyperScale] = lr, c.Decay, 1
		h[kernels.HyperBeta2] = math.Pow(t, -a.Power)
		h[kernels.HyperFloor], h[kernels.HyperClipAbove], h[kernels.HyperMeasured] = a.Floor, a.Above, 1
		if a.Fixed {
			h[kernels.HyperMeasured] = 0
		} else if lr > 0 {
			h[kernels.HyperScale] = min(lr, 1/math.Sqrt(t)) / lr
		}
	}
	o.Update = turnedStep
	o.Turning = &Turning{Squares: true, Turn: func(_ Config, b kernels.Backend, whole *tensor.Tensor, with Turned) {
		out := []*tensor.Tensor{whole, with.State[0], nil}
		if factored { // an average of weights may lie behind them
			out[2] = with.State[1]
		}
		b.Run(&kernels.Call{Op: kernels.Adafactor, In: []*tensor.Tensor{whole, with.Square, with.Hyper,
			with.Clip}, Out: out})
	}, Flops: func(_ Config, n, k int) int64 { return 8 * int64(n) * int64(k) }}
	return o
}

// turnedStep moves a parameter by a direction that has been made.
//
//lfvet:params it is an Optimizer.Update
func turnedStep(b kernels.Backend, grad, hyper, clip, p *tensor.Tensor, _ []*tensor.Tensor, model *tensor.Tensor,
	noDecay bool) {
	at := kernels.Attr{}
	if noDecay {
		at.I[0] = 1
	}
	b.Run(&kernels.Call{Op: kernels.MuonStep, In: []*tensor.Tensor{grad, hyper, clip},
		Out: []*tensor.Tensor{p, model}, Attr: at})
}

// short is a shape with an axis of length 1, counted from the last.
func short(axis int) func(of []int) []int {
	return func(of []int) []int {
		s := slices.Clone(of)
		s[len(s)-1-axis] = 1
		return s
	}
}

var (
	_ = Register(adafactor(Optimizer{Name: "adafactor", Rest: "adafactor of numbers", State: []string{"exp_avg_sq_row",
		"exp_avg_sq_col"}, Forms: []Form{{Whole: short(0)}, {Whole: short(1)}}, Takes: func(s Subject) bool {
		return len(s.Shape) == 2 && !s.Experts && !s.Taps || len(s.Shape) == 3 && s.Experts
	}}, true))
	_ = Register(adafactor(Optimizer{Name: "adafactor of numbers", Inner: true, State: []string{"exp_avg_sq"},
		Forms: []Form{{Whole: slices.Clone[[]int]}}}, false))
)
