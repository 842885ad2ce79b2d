package objective

// reinforce is REINFORCE++ with a baseline: advantages have the scale of the whole step.
var _ = register(Loss{Name: "reinforce", Source: "arXiv:2501.03262",
	Doc:    "−min(r·A, clip(r)·A), A = R − mean of the group over the step's deviation, a mean over tokens",
	Reads:  []string{"clip_low", "clip_high", "kl"},
	Policy: &Policy{Advantages: whitened, Share: byToken, ClipLow: 0.2, ClipHigh: 0.2}, Of: policyOf(token, clipped)})
