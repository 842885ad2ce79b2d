package noise

const ddpmPaper = "arXiv:2006.11239"

// linear has variances at equal distances.
var _ = RegisterCurve(Curve{Name: "linear", Source: ddpmPaper,
	Betas: func(b Betas, n int) []float32 { return linspace32(b.Start, b.End, n) }})
