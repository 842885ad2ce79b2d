package objective

// ppo learns the value of every token beside the policy, by a head of one number on the same model.
var _ = register(Loss{Name: "ppo", Source: "arXiv:1707.06347; arXiv:1506.02438", Doc: "−min(r·A, clip(r)·A) + " +
	"value_weight·½·max((V − R)², (clip(V) − R)²), A and R by generalised advantage estimation from the values " +
	"when drawn, rewards −kl·k1 a token and the answer's at its end", Reads: []string{"clip_low", "clip_high",
	"kl", "discount", "gae_lambda", "value_weight", "clip_value"}, Policy: &Policy{Tokens: estimated, Share: byToken,
	ClipLow: 0.2, ClipHigh: 0.2, Value: "ppo_value"}, Of: func(p *Params, r *Rows, grad []float64) float64 {
	q := *p
	q.KL = 0 // it is in the rewards
	return policyOf(token, clipped)(&q, r, grad)
}})
