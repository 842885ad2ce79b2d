package noise

import "slices"

// sample is the clean sample.
var _ = RegisterTarget(Target{Name: "sample", Source: ddpmPaper,
	Of: func(_ Level, x0, _ []float32) []float32 { return slices.Clone(x0) },
	X0: func(_ Level, _, out []float32) []float32 { return out }, Noise: func(l Level, x, out []float32) []float32 {
		return over(axpy(1, x, -l.Alpha, out), l.Sigma)
	}})
