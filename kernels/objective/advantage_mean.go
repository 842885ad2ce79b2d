package objective

// centred are rewards less their group's mean (arXiv:2503.20783).
func centred(groups [][]float64) [][]float64 {
	out := make([][]float64, len(groups))
	for k, g := range groups {
		mean := 0.0
		for _, x := range g {
			mean += x / float64(len(g))
		}
		for _, x := range g {
			out[k] = append(out[k], x-mean)
		}
	}
	return out
}
