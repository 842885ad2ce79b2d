package noise

// uniform favours no level.
var _ = RegisterDraw(Draw{Name: "uniform", Source: "arXiv:2210.02747",
	U: func(_ Times, k Key) float64 { return k.Uniform(0) }})
