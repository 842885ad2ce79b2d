package noise

// none is 1.
var _ = RegisterWeight(Weight{Name: "none", Source: ddpmPaper, Of: plain(func(Level) float32 { return 1 })})
