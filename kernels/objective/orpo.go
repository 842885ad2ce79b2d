package objective

import "math"

// orpo adds the odds of the chosen answer over the rejected one to the loss of a language model, which
// counts the prompt as well.
var _ = register(Loss{Name: "orpo", Source: "arXiv:2403.07691", Mean: true, Doc: "NLL of prompt and chosen answer − β·log " +
	"σ(z), z = log odds(p_c) − log odds(p_r), log p the mean over tokens", Reads: []string{"beta"}, Prompts: true,
	Of: func(p *Params, r *Rows, grad []float64) float64 {
		q := *p
		q.Text = 1
		return odds(&q, r, grad)
	}})

var odds = pairwise(func(p *Params, c, r *Side) (loss, dc, dr float64) {
	lc, lr := c.mean(), r.mean()
	z := lc - lr - (logOneLess(lc) - logOneLess(lr))
	d := -p.Beta * sigmoid(-z)
	return p.Beta * softplus(-z), d / (1 - math.Exp(lc)) / c.N, -d / (1 - math.Exp(lr)) / r.N
})

// logOneLess is log(1 − e^x) for x < 0.
func logOneLess(x float64) float64 {
	if x > -math.Ln2 {
		return math.Log(-math.Expm1(x))
	}
	return math.Log1p(-math.Exp(x))
}
