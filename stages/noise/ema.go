package noise

import "math"

// EMA is an exponential moving average of weights, as diffusers' EMAModel (EMAModel.get_decay). The zero
// value of InvGamma and Power stands for 1 and 2/3.
type EMA struct {
	Decay    float64 // the largest, 0.9999 in diffusers
	Min      float64 // the least
	After    int64   // updates before the average begins
	Warmup   bool    // decay 1−(1+k/InvGamma)^(−Power) in the place of (1+k)/(10+k)
	InvGamma float64
	Power    float64
}

// At is the decay of an update, counted from 1: 0, a copy of the weights, until one update behind After.
func (e EMA) At(update int64) float64 {
	k := float64(update - e.After - 1)
	if k <= 0 {
		return 0
	}
	d := (1 + k) / (10 + k)
	if e.Warmup {
		d = 1 - math.Pow(1+k/or(e.InvGamma, 1), -or(e.Power, 2.0/3))
	}
	return max(min(d, e.Decay), e.Min)
}

// Update moves an average towards the weights after an update: s −= (1−d)·(s−p), in float32.
func (e EMA) Update(update int64, average, weights []float32) {
	by := float32(1 - e.At(update))
	for i, p := range weights {
		average[i] -= float32(by * (average[i] - p))
	}
}
