package objective

// cispo drops no token's gradient.
var _ = register(Loss{Name: "cispo", Source: "arXiv:2506.13585",
	Doc:   "−min(r, clip_high)·A·ℓ without a gradient of r, A as in grpo, a mean over the step's tokens",
	Reads: []string{"clip_high", "kl"}, Held: true, Policy: &Policy{Advantages: normed, Share: byToken, ClipHigh: 5},
	Of: policyOf(token, detached)})
