package objective

// masked is truncation by a mask: the ratio weighs the gradient of the log-probability, and counts as 0 outside
// [1 − clip_low, 1 + clip_high]. What is left out keeps its place in means.
func masked(p *Params, c, a, l float64) (loss, dc, dl float64) {
	if c < 1-p.ClipLow || c > 1+p.ClipHigh {
		return 0, 0, 0
	}
	return -c * a * l, 0, -c * a
}
