package noise

import "math"

// laplace has a log SNR that follows the quantiles of Laplace's distribution.
var _ = RegisterCurve(Curve{Name: "laplace", Source: "arXiv:2407.03297", In: []string{"DDPMScheduler", "DDPMParallelScheduler"},
	Betas: func(_ Betas, n int) []float32 {
		return alphaBar(n, func(t float64) float64 {
			l := -0.5 * math.Copysign(1, 0.5-t) * math.Log(1-2*math.Abs(0.5-t)+1e-6)
			snr := math.Exp(l)
			return math.Sqrt(snr / (1 + snr))
		})
	}})
