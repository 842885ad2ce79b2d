package objective

// gspo has one ratio an answer, so that experts that change between updates do no harm.
var _ = register(Loss{Name: "gspo", Source: "arXiv:2507.18071",
	Doc:    "−min(s·A, clip(s)·A), s the geometric mean of an answer's ratios, a mean over answers",
	Reads:  []string{"clip_low", "clip_high", "kl"},
	Policy: &Policy{Advantages: normed, Share: byAnswer, ClipLow: 3e-4, ClipHigh: 4e-4},
	Of:     policyOf(sequenceMean, clipped)})
