package noise

// waver is Waver's draw for video: mode with a scale of 1.29, shifted towards noise.
var _ = RegisterDraw(Draw{Name: "waver", Source: "arXiv:2508.15761; Cosmos' trainer", Reads: []string{"Shift"},
	U: func(t Times, k Key) float64 { return towardsNoise(heavyTailed(k.Uniform(0), 1.29), or(t.Shift, 1)) }})
