package objective

// kto learns from single answers that are good or bad. The second sequence of each couple is the prompt with
// another prompt's answer; such rows tell how far the policy is from the reference as a whole: z is their
// mean gain in the microbatch, not below 0, and has no gradient.
var _ = register(Loss{Name: "kto", Source: "arXiv:2402.01306", Reference: true, Judged: true,
	Held: true, Doc: "desirable·(1 − σ(β(S − S' − z))) of good answers, undesirable·(1 − σ(β(z " +
		"− S + S'))) of bad ones, z the mean gain of answers to other prompts in the microbatch, at least 0",
	Reads: []string{"beta", "desirable", "undesirable"}, Of: func(p *Params, r *Rows, grad []float64) float64 {
		z, all := 0.0, 0.0
		sides, weights := gather(r)
		for i := 1; i < len(sides); i += 2 {
			z, all = z+weights[i]*sides[i].gain(), all+weights[i]
		}
		if all > 0 {
			z = max(0, z/all)
		}
		return pairwise(func(p *Params, own, _ *Side) (loss, dc, dr float64) {
			weight, sign := p.Desirable, 1.0
			if own.Margin < 0 {
				weight, sign = p.Undesirable, -1
			}
			s := sigmoid(p.Beta * sign * (own.gain() - z))
			return weight * (1 - s), -weight * sign * p.Beta * s * (1 - s), 0
		})(p, r, grad)
	}})
