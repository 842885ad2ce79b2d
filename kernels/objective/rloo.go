package objective

// rloo compares an answer with the others of its group, and weighs whole answers.
var _ = register(Loss{Name: "rloo", Source: "arXiv:2402.14740", Doc: "−min(r·A, clip(r)·A), r the ratio of " +
	"an answer, A = R − mean of the others, a mean over answers", Reads: []string{"clip_low", "clip_high", "kl"},
	Policy: &Policy{Advantages: leftOut, Share: byAnswer, ClipLow: 0.2, ClipHigh: 0.2},
	Of:     policyOf(sequence, clipped)})
