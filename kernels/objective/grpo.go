package objective

// grpo compares answers with their group, each answer alike.
var _ = register(Loss{Name: "grpo", Source: "arXiv:2402.03300", Doc: "−min(r·A, clip(r)·A), A = (R − " +
	"mean)/deviation of the group, a mean over tokens and then answers", Reads: []string{"clip_low", "clip_high", "kl"},
	Policy: &Policy{Advantages: normed, Share: byAnswer, ClipLow: 0.2, ClipHigh: 0.2}, Of: policyOf(token, clipped)})
