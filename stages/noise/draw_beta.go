package noise

// beta has a share of noise of Beta(Alpha, Beta): the policies Pi, SmolVLA and GR00T take Beta(1.5, 1),
// whose quantile is u^(2/3).
var _ = RegisterDraw(Draw{Name: "beta", Source: "arXiv:2410.24164, §IV", Reads: []string{"Alpha", "Beta"},
	U: func(t Times, k Key) float64 {
		return 1 - betaQuantile(k.Uniform(0), or(t.Alpha, 1.5), or(t.Beta, 1))
	}})
