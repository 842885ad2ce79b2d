package optim

import "github.com/lfactor/lfactor/kernels"

var _ = Register(Optimizer{Name: "lion", Op: kernels.Lion, State: []string{"exp_avg"}, Paper: "2302.06675",
	Hyper: func(c Config, lr float64, update int64, h []float64) {
		h[kernels.HyperLR], h[kernels.HyperBeta1], h[kernels.HyperBeta2] = lr, c.Beta1, c.Beta2
		h[kernels.HyperDecay] = c.Decay
	}})
