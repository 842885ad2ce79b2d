package objective

// dpo_smoothed is DPO's loss under labels of which a share ε is wrong (cDPO).
var _ = register(Loss{Name: "dpo_smoothed", Source: "Mitchell 2023, cDPO", Reference: true,
	Doc: "−(1−ε)·log σ(βd) − ε·log σ(−βd), d as in dpo", Reads: []string{"beta", "smoothing", "sft_weight"},
	Of: pairwise(func(p *Params, c, r *Side) (loss, dc, dr float64) {
		x, e := p.Beta*(c.gain()-r.gain()), p.Smoothing
		d := p.Beta * (-(1-e)*sigmoid(-x) + e*sigmoid(x))
		return (1-e)*softplus(-x) + e*softplus(x), d, -d
	})})
