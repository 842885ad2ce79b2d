package objective

// dpo is direct preference optimization.
var _ = register(Loss{Name: "dpo", Source: "arXiv:2305.18290", Reference: true,
	Doc: "−log σ(β·((S_c − S'_c) − (S_r − S'_r)))", Reads: []string{"beta", "sft_weight"},
	Of: pairwise(func(p *Params, c, r *Side) (loss, dc, dr float64) {
		x := p.Beta * (c.gain() - r.gain())
		d := -p.Beta * sigmoid(-x)
		return softplus(-x), d, -d
	})})
