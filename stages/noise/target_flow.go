package noise

// flow_prediction is the velocity ε − x0 along x = (1−σ)·x0 + σ·ε.
var _ = RegisterTarget(Target{Name: "flow_prediction", Source: "arXiv:2210.02747; arXiv:2403.03206",
	Of:    func(_ Level, x0, noise []float32) []float32 { return axpy(1, noise, -1, x0) },
	X0:    func(l Level, x, out []float32) []float32 { return axpy(1, x, -l.Sigma, out) },
	Noise: func(l Level, x, out []float32) []float32 { return axpy(1, x, l.Alpha, out) }})
