package objective

// mis leaves answers out whose probability has moved far from that with which they were drawn: the estimator of
// sequences, which is unbiased where none is left out.
var _ = register(Loss{Name: "mis", Source: "TRL 1.16, sequence_mask", Doc: "−r·A·ℓ without a gradient " +
	"of r, the ratio of an answer, 0 for answers whose r is outside 1 − clip_low to 1 + clip_high, A " +
	"as in grpo, a mean over the step's tokens", Reads: []string{"clip_low", "clip_high", "kl"}, Held: true,
	Policy: &Policy{Advantages: normed, Share: byToken, ClipLow: 1, ClipHigh: 2}, Of: policyOf(sequence, masked)})
