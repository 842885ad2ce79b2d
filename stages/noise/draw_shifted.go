package noise

// shifted moves uniform levels towards noise: s = shift·s/(1+(shift−1)·s) of s = 1−u. It is for tables that
// are not shifted themselves.
var _ = RegisterDraw(Draw{Name: "shifted", Source: "arXiv:2403.03206, equation 23", Reads: []string{"Shift"},
	U: func(t Times, k Key) float64 { return towardsNoise(k.Uniform(0), or(t.Shift, 1)) }})

func towardsNoise(u, shift float64) float64 {
	s := 1 - u
	return 1 - shift*s/(1+float64((shift-1)*s))
}
