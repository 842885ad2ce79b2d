package objective

// dpo_hinge is SLiC's loss on DPO's rewards.
var _ = register(Loss{Name: "dpo_hinge", Source: "arXiv:2309.06657", Reference: true,
	Doc: "max(0, 1 − β·((S_c − S'_c) − (S_r − S'_r)))", Reads: []string{"beta", "sft_weight"},
	Of: pairwise(func(p *Params, c, r *Side) (loss, dc, dr float64) {
		x := 1 - p.Beta*(c.gain()-r.gain())
		if x <= 0 {
			return 0, 0, 0
		}
		return x, -p.Beta, p.Beta
	})})
