package noise

import "math"

// cosmap is 2/(π·(1−2σ+2σ²)).
var _ = RegisterWeight(Weight{Name: "cosmap", Source: "arXiv:2403.03206, §3.1", Of: plain(func(l Level) float32 {
	return 2 / float32(math.Pi*(1-float32(2*l.Sigma)+float32(2*float32(l.Sigma*l.Sigma))))
})})
