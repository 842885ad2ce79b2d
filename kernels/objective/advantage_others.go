package objective

// leftOut are rewards less the mean of the group's others (arXiv:2402.14740).
func leftOut(groups [][]float64) [][]float64 {
	out := centred(groups)
	for _, g := range out {
		for i := range g {
			if n := float64(len(g)); n > 1 {
				g[i] *= n / (n - 1)
			}
		}
	}
	return out
}
