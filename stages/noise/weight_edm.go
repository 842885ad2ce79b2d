package noise

// edm is the weight of EDM's network output F: (σ²+σ_d²)/(σ·σ_d)² of the sample's error is 1 of F's.
var _ = RegisterWeight(Weight{Name: "edm", Source: "arXiv:2206.00364, §5",
	Of: func(_ Weighting, target string, _ Levels) (func(Level) float32, error) {
		if target != "sample" {
			return func(Level) float32 { return 1 }, nil
		}
		return func(l Level) float32 {
			_, out := edmScales(l.Sigma, l.Data)
			return 1 / float32(out*out)
		}, nil
	}})
