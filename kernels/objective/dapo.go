package objective

// dapo lets unlikely tokens grow further, and counts all tokens alike.
var _ = register(Loss{Name: "dapo", Source: "arXiv:2503.14476",
	Doc:    "−min(r·A, clip(r)·A), A as in grpo, clip_high 0.28, a mean over the step's tokens",
	Reads:  []string{"clip_low", "clip_high", "kl"},
	Policy: &Policy{Advantages: normed, Share: byToken, ClipLow: 0.2, ClipHigh: 0.28}, Of: policyOf(token, clipped)})
