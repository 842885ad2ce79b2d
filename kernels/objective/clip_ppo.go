package objective

// clipped is PPO's clip (arXiv:1707.06347): -min(c·a, clip(c)·a).
func clipped(p *Params, c, a, _ float64) (loss, dc, dl float64) {
	held := min(max(c, 1-p.ClipLow), 1+p.ClipHigh)
	if c*a <= held*a {
		return -c * a, -a, 0
	}
	return -held * a, 0, 0
}
