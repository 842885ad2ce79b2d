package optim

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// AverageState names the state tensor of a parameter that holds its exponential moving average.
const AverageState = "ema"

// Averaging is an exponential moving average of weights beside an optimizer, as diffusers' EMAModel
// (EMAModel.get_decay). The zero value keeps none.
type Averaging struct {
	Decay float64 // the largest, 0.9999 in diffusers; 0 for no average
	After int64   // updates before the average begins; until then it is a copy of the weights
	Power float64 // of a warm-up 1−(1+k)^(−Power); 0 for (1+k)/(10+k)
}

// At is the decay of an update, counted from 1: 0, a copy of the weights, until one update behind After.
func (e Averaging) At(update int64) float64 {
	k := float64(update - e.After - 1)
	if k <= 0 {
		return 0
	}
	d := (1 + k) / (10 + k)
	if e.Power > 0 {
		d = 1 - math.Pow(1+k, -e.Power)
	}
	return min(d, e.Decay)
}

// beside adds the average to an optimizer: one more tensor of state, which each update moves towards the
// weights that it leaves. It is sharded, offloaded, saved and moved as the rest of the state.
func (e Averaging) beside(o Optimizer) Optimizer {
	base := o
	o.State = append(slices.Clone(base.State), AverageState)
	if base.Forms != nil {
		o.Forms = append(slices.Clone(base.Forms), Form{})
	}
	o.Hyper = func(c Config, lr float64, update int64, h []float64) {
		if base.Hyper != nil {
			base.Hyper(c, lr, update, h)
		}
		h[kernels.HyperAverage] = 1 - e.At(update)
	}
	o.Update = func(b kernels.Backend, grad, hyper, clip, p *tensor.Tensor, state []*tensor.Tensor,
		model *tensor.Tensor, noDecay bool) {
		last := len(base.State)
		base.Apply(b, grad, hyper, clip, p, state[:last], model, noDecay)
		b.Run(&kernels.Call{Op: kernels.Average, In: []*tensor.Tensor{p, hyper, clip},
			Out: []*tensor.Tensor{state[last]}})
	}
	return o
}

// Of returns the optimizer that a configuration asks for, with its average of weights if there is one.
func Of(c Config) (Optimizer, error) {
	o, err := Get(c.Name)
	if err == nil {
		o = c.narrowed(o)
	}
	if err == nil && c.Average.Decay > 0 {
		o = c.Average.beside(o)
	}
	return o, err
}
