package noise

import "math"

// scaled_linear has square roots of variances at equal distances: Stable Diffusion's.
var _ = RegisterCurve(Curve{Name: "scaled_linear", Source: "arXiv:2112.10752", Betas: func(b Betas, n int) []float32 {
	out := linspace32(math.Sqrt(b.Start), math.Sqrt(b.End), n)
	for i, v := range out {
		out[i] = float32(v * v)
	}
	return out
}})
