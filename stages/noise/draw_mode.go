package noise

import "math"

// mode favours the middle or the ends by its scale, and reaches both ends.
var _ = RegisterDraw(Draw{Name: "mode", Source: "arXiv:2403.03206, equation 20", Reads: []string{"Scale"},
	U: func(t Times, k Key) float64 { return heavyTailed(k.Uniform(0), or(t.Scale, 1.29)) }})

// heavyTailed is 1 − u − s·(cos²(πu/2) − 1 + u).
func heavyTailed(u, scale float64) float64 {
	c := math.Cos(math.Pi * u / 2)
	return 1 - u - float64(scale*(float64(c*c)-1+u))
}
