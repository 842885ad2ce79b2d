package optim

import "github.com/lfactor/lfactor/kernels"

var _ = Register(Optimizer{Name: "sgd", Op: kernels.SGD, State: []string{"momentum"}, Paper: "torch.optim.SGD",
	Hyper: func(c Config, lr float64, update int64, h []float64) {
		h[kernels.HyperLR], h[kernels.HyperBeta1], h[kernels.HyperDecay] = lr, c.Momentum, c.Decay
	}})
