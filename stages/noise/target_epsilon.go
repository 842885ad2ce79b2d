package noise

import "slices"

// epsilon is the noise.
var _ = RegisterTarget(Target{Name: "epsilon", Source: ddpmPaper,
	Of: func(_ Level, _, noise []float32) []float32 { return slices.Clone(noise) },
	X0: func(l Level, x, out []float32) []float32 {
		return over(axpy(1, x, -l.Sigma, out), l.Alpha)
	}, Noise: func(_ Level, _, out []float32) []float32 { return out }})
