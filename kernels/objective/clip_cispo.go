package objective

// detached is CISPO's (arXiv:2506.13585): the ratio, held below clip_high, only weighs the gradient
// of the log-probability.
func detached(p *Params, c, a, l float64) (loss, dc, dl float64) {
	c = min(c, p.ClipHigh)
	return -c * a * l, 0, -c * a
}
