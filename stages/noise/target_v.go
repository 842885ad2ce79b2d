package noise

// v_prediction is α·ε − σ·x0.
var _ = RegisterTarget(Target{Name: "v_prediction", Source: "arXiv:2202.00512, appendix D",
	Of: func(l Level, x0, noise []float32) []float32 { return axpy(l.Alpha, noise, -l.Sigma, x0) },
	X0: func(l Level, x, out []float32) []float32 { return axpy(l.Alpha, x, -l.Sigma, out) },
	Noise: func(l Level, x, out []float32) []float32 {
		return axpy(l.Alpha, out, l.Sigma, x)
	}})
