package objective

import "math"

// groupEps is added to the deviation of a group, as in TRL.
const groupEps = 1e-4

// normed are rewards less their group's mean, over its deviation (arXiv:2402.03300). A group whose rewards
// are equal has none.
func normed(groups [][]float64) [][]float64 {
	out := centred(groups)
	for _, g := range out {
		if len(g) < 2 {
			continue
		}
		squares := 0.0
		for _, x := range g {
			squares += x * x
		}
		deviation := math.Sqrt(squares / float64(len(g)-1))
		for i := range g {
			g[i] /= deviation + groupEps
		}
	}
	return out
}
