package objective

// dr_grpo leaves out what favours long wrong answers and easy or hard prompts.
var _ = register(Loss{Name: "dr_grpo", Source: "arXiv:2503.20783",
	Doc:    "−min(r·A, clip(r)·A), A = R − mean of the group, over answers and rollout.max_tokens",
	Reads:  []string{"clip_low", "clip_high", "kl"},
	Policy: &Policy{Advantages: centred, Share: byMost, ClipLow: 0.2, ClipHigh: 0.2}, Of: policyOf(token, clipped)})
