package objective

// simpo needs no reference: its rewards are means of log-probabilities.
var _ = register(Loss{Name: "simpo", Source: "arXiv:2405.14734", Mean: true,
	Doc: "−log σ(β·(S_c/n_c − S_r/n_r) − γ); β of 2 to 2.5 is usual", Reads: []string{"beta", "gamma", "sft_weight"},
	Of: pairwise(func(p *Params, c, r *Side) (loss, dc, dr float64) {
		x := p.Beta*(c.mean()-r.mean()) - p.Gamma
		d := -p.Beta * sigmoid(-x)
		return softplus(-x), d / c.N, -d / r.N
	})})
