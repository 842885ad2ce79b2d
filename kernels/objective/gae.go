package objective

import "math"

// whitenEps is added to the variance of advantages, as in verl.
const whitenEps = 1e-8

// estimated is generalised advantage estimation (arXiv:1506.02438): backwards over an answer's tokens, δ = r + γ·V' −
// V, A = δ + γλ·A', with 0 behind the last. Returns are A + V, and advantages are then whitened over the tokens of all
// answers. The reward of a token is −kl·(ℓ − ℓ'), and that of the answer comes with the last.
func estimated(p *Params, all []Drawn) (advantages, returns [][]float64) {
	n, sum, squares := 0.0, 0.0, 0.0
	for _, d := range all {
		a, back := make([]float64, len(d.LogProbs)), make([]float64, len(d.LogProbs))
		next, after := 0.0, 0.0
		for i := len(a) - 1; i >= 0; i-- {
			r, v := 0.0, float64(d.Values[i])
			if p.KL > 0 {
				r = -p.KL * (float64(d.LogProbs[i]) - float64(d.Reference[i]))
			}
			if i == len(a)-1 {
				r += d.Reward
			}
			after = r + p.Discount*next - v + p.Discount*p.Lambda*after
			next = v
			a[i], back[i] = after, after+v
			n, sum = n+1, sum+after
		}
		advantages, returns = append(advantages, a), append(returns, back)
	}
	for _, a := range advantages {
		for _, x := range a {
			squares += (x - sum/n) * (x - sum/n)
		}
	}
	for _, a := range advantages {
		for i := range a {
			if n > 1 {
				a[i] = (a[i] - sum/n) / math.Sqrt(squares/(n-1)+whitenEps)
			}
		}
	}
	return advantages, returns
}
