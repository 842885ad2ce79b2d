package noise

import "math"

// betaMax is the largest variance of a curve that is given by its ᾱ.
const betaMax = 0.999

// squaredcos_cap_v2 has ᾱ(t) = cos²((t+0.008)/1.008·π/2).
var _ = RegisterCurve(Curve{Name: "squaredcos_cap_v2", Source: "arXiv:2102.09672, equation 17",
	Betas: func(_ Betas, n int) []float32 {
		return alphaBar(n, func(t float64) float64 {
			c := math.Cos((t + 0.008) / 1.008 * math.Pi / 2)
			return c * c
		})
	}})

// alphaBar is the table of variances whose products follow a function of the share of time.
func alphaBar(n int, bar func(t float64) float64) []float32 {
	out := make([]float32, n)
	for i := range out {
		from, to := float64(i)/float64(n), float64(i+1)/float64(n)
		out[i] = float32(min(1-bar(to)/bar(from), betaMax))
	}
	return out
}
