package noise

import "math"

// sigmoid has variances along the logistic curve from −6 to 6.
var _ = RegisterCurve(Curve{Name: "sigmoid", Source: "arXiv:2203.02923", In: []string{"DDPMScheduler", "DDPMParallelScheduler", "RePaintScheduler"},
	Betas: func(b Betas, n int) []float32 {
		out := linspace32(-6, 6, n)
		for i, v := range out {
			s := float32(1 / (1 + math.Exp(-float64(v))))
			out[i] = float32(s*float32(b.End-b.Start)) + float32(b.Start)
		}
		return out
	}})
