package objective

// distill learns from a teacher, objective.reference, on answers that the student draws itself: the reverse
// distance of Kullback and Leibler, estimated at the tokens that are drawn.
var _ = register(Loss{Name: "distill", Source: "arXiv:2306.13649, on-policy with the reverse distance",
	Doc:   "−min(r·A, clip(r)·A), A = ℓ' − ℓ of each token when drawn, ℓ' the teacher's, a mean over tokens",
	Reads: []string{"clip_low", "clip_high"}, Reference: true,
	Policy: &Policy{Tokens: taught, Unjudged: true, Share: byToken, ClipLow: 0.2, ClipHigh: 0.2},
	Of:     policyOf(token, clipped)})

// taught is how much more likely the teacher finds each token.
// In the words of the field: knowledge distillation.
func taught(_ *Params, all []Drawn) (advantages, returns [][]float64) {
	for _, d := range all {
		a := make([]float64, len(d.LogProbs))
		for i := range a {
			a[i] = float64(d.Reference[i]) - float64(d.LogProbs[i])
		}
		advantages = append(advantages, a)
	}
	return advantages, nil
}
