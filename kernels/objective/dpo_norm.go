package objective

// dpo_norm is DPO on means over tokens, so that length wins nothing.
var _ = register(Loss{Name: "dpo_norm", Source: "arXiv:2411.15124", Reference: true,
	Doc: "−log σ(β·((S_c − S'_c)/n_c − (S_r − S'_r)/n_r))", Reads: []string{"beta", "sft_weight"},
	Of: pairwise(func(p *Params, c, r *Side) (loss, dc, dr float64) {
		x := p.Beta * (c.gain()/c.N - r.gain()/r.N)
		d := -p.Beta * sigmoid(-x)
		return softplus(-x), d / c.N, -d / r.N
	})})
