package objective

// ipo regresses the difference of rewards; they are means over tokens, as its authors have said since and TRL has it.
var _ = register(Loss{Name: "ipo", Source: "arXiv:2310.12036", Reference: true,
	Doc: "((S_c − S'_c)/n_c − (S_r − S'_r)/n_r − 1/(2β))²", Reads: []string{"beta", "sft_weight"},
	Of: pairwise(func(p *Params, c, r *Side) (loss, dc, dr float64) {
		x := c.gain()/c.N - r.gain()/r.N - 1/(2*p.Beta)
		return x * x, 2 * x / c.N, -2 * x / r.N
	})})
