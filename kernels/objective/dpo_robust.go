package objective

// dpo_robust takes a share ε of wrong labels out of DPO's loss.
var _ = register(Loss{Name: "dpo_robust", Source: "arXiv:2403.00409", Reference: true,
	Doc:   "(−(1−ε)·log σ(βd) + ε·log σ(−βd)) / (1−2ε), d as in dpo; ε below 0.5",
	Reads: []string{"beta", "smoothing", "sft_weight"},
	Of: pairwise(func(p *Params, c, r *Side) (loss, dc, dr float64) {
		x, e := p.Beta*(c.gain()-r.gain()), p.Smoothing
		d := p.Beta * (-(1-e)*sigmoid(-x) - e*sigmoid(x)) / (1 - 2*e)
		return ((1-e)*softplus(-x) - e*softplus(x)) / (1 - 2*e), d, -d
	})})
