package noise

import "math"

// exp has ᾱ(t) = exp(−12t).
var _ = RegisterCurve(Curve{Name: "exp", Source: "diffusers, HeunDiscreteScheduler",
	In: []string{"HeunDiscreteScheduler"}, Betas: func(_ Betas, n int) []float32 {
		return alphaBar(n, func(t float64) float64 { return math.Exp(-12 * t) })
	}})
