package noise

import "math"

// logit_normal favours the middle: the logistic function of a normal number.
var _ = RegisterDraw(Draw{Name: "logit_normal", Source: "arXiv:2403.03206, equation 19", Reads: []string{"Mean", "Std"},
	U: func(t Times, k Key) float64 {
		return 1 / (1 + math.Exp(-(t.Mean + float64(or(t.Std, 1)*k.Normal(0)))))
	}})
