package objective

// icepop leaves tokens out whose probability has moved far from that with which they were drawn.
var _ = register(Loss{Name: "icepop", Source: "arXiv:2510.18855",
	Doc: "−r·A·ℓ without a gradient of r, 0 for tokens whose r is outside 1 − clip_low to 1 + clip_high, " +
		"A as in grpo, a mean over the step's tokens", Reads: []string{"clip_low", "clip_high", "kl"}, Held: true,
	Policy: &Policy{Advantages: normed, Share: byToken, ClipLow: 0.5, ClipHigh: 4}, Of: policyOf(token, masked)})
