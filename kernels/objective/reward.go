package objective

// reward trains a model of rewards: the score of the last token of the chosen answer is to be above that of
// the rejected one by a margin.
var _ = register(Loss{Name: "reward", Source: "Bradley and Terry 1952; arXiv:2307.09288, equation 2",
	Score: true, Doc: "−log σ(r_c − r_r − margin) + center·(r_c + r_r)²", Reads: []string{"center"},
	Of: pairwise(func(p *Params, c, r *Side) (loss, dc, dr float64) {
		x, both := c.Sum-r.Sum-c.Margin, c.Sum+r.Sum
		d, e := -sigmoid(-x), 2*p.Center*both
		return softplus(-x) + p.Center*both*both, d + e, -d + e
	})})
