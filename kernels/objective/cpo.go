package objective

// cpo is DPO without a reference; its authors add the loss of a language model with weight 1.
var _ = register(Loss{Name: "cpo", Source: "arXiv:2401.08417",
	Doc: "−log σ(β·(S_c − S_r)); sft_weight is 1 in the paper", Reads: []string{"beta", "smoothing", "sft_weight"},
	Of: pairwise(func(p *Params, c, r *Side) (loss, dc, dr float64) {
		x, e := p.Beta*(c.Sum-r.Sum), p.Smoothing
		d := p.Beta * (-(1-e)*sigmoid(-x) + e*sigmoid(x))
		return (1-e)*softplus(-x) + e*softplus(x), d, -d
	})})
