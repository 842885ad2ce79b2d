package noise

import (
	"math"
	"slices"
)

// Threshold are the keys of dynamic thresholding (arXiv:2205.11487, §2.3): predictions of the sample are
// clamped to the quantile of their magnitude, which is at least 1, and divided by it.
type Threshold struct {
	On    bool    `json:"thresholding"`
	Ratio float64 `json:"dynamic_thresholding_ratio"`
	Max   float64 `json:"sample_max_value"`
}

func defaultThreshold() Threshold { return Threshold{Ratio: 0.995, Max: 1} }

func (t Threshold) check(f *faults) {
	f.Within("dynamic_thresholding_ratio", t.Ratio, 0, 1)
	f.Within("sample_max_value", t.Max, 0, math.MaxFloat32)
}

// apply is the thresholded prediction.
func (t Threshold) apply(x0 []float32) []float32 {
	if !t.On || len(x0) == 0 {
		return x0
	}
	abs := make([]float32, len(x0))
	for i, v := range x0 {
		abs[i] = max(v, -v)
	}
	slices.Sort(abs)
	rank := float32(float32(t.Ratio) * float32(len(abs)-1))
	low := int(rank)
	s := abs[low]
	if low+1 < len(abs) {
		s += float32((rank - float32(low)) * (abs[low+1] - abs[low]))
	}
	s = min(max(s, 1), float32(t.Max))
	out := clamp(x0, s)
	for i := range out {
		out[i] /= s
	}
	return out
}

// Clip are the keys of clipping the prediction of the sample.
type Clip struct {
	On    bool    `json:"clip_sample"`
	Range float64 `json:"clip_sample_range"`
}

func (c Clip) check(f *faults) { f.Within("clip_sample_range", c.Range, 0, math.MaxFloat32) }

// apply is the clipped prediction.
func (c Clip) apply(x0 []float32) []float32 {
	if !c.On {
		return x0
	}
	return clamp(x0, float32(c.Range))
}

func clamp(x []float32, by float32) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = min(max(v, -by), by)
	}
	return out
}
