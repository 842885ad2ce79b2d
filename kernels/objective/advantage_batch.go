package objective

import "math"

// whitened are rewards less their group's mean, over the deviation of the whole step (arXiv:2501.03262,
// with a baseline).
func whitened(groups [][]float64) [][]float64 {
	out := centred(groups)
	n, squares := 0.0, 0.0
	for _, g := range out {
		for _, x := range g {
			n, squares = n+1, squares+x*x
		}
	}
	for _, g := range out {
		for i := range g {
			if n > 1 {
				g[i] /= math.Sqrt(squares/(n-1)) + groupEps
			}
		}
	}
	return out
}
