package world

import "math"

// Interval is where a rate lies.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Wilson is the interval of 95 % of a rate of which n tries had won successes, by Wilson's score (1927). It is
// all that a rate can be when nothing was tried.
func Wilson(won, n int) Interval {
	if n == 0 {
		return Interval{0, 1}
	}
	const z = 1.959963984540054 // of the normal distribution, 97.5 %
	p, m := float64(won)/float64(n), float64(n)
	mid := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return Interval{max(0, mid-half), min(1, mid+half)}
}
