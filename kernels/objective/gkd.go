package objective

import "math"

// gkd learns the distributions of a teacher on the answers of the data, by the generalised divergence of
// Jensen and Shannon: mix 0 is the distance from the teacher, 1 that from the student.
var _ = register(Loss{Name: "gkd", Source: "arXiv:2306.13649", Reference: true,
	Doc: "β·KL(t‖M) + (1−β)·KL(s‖M) of the distributions of teacher and student, M = β·t + (1−β)·s, β mix; 0 is " +
		"KL(t‖s), 1 KL(s‖t); a mean over the tokens of answers", Reads: []string{"mix"}, Logits: divergence})

// divergence gives the divergence of one row of logits from the teacher's, and its derivatives by z.
func divergence(p *Params, z, teacher []float32, grad []float64) float64 {
	s, ls := softmax(z)
	t, lt := softmax(teacher)
	loss, inner, beta := 0.0, 0.0, p.Mix
	for i := range z {
		var g float64 // what the loss changes by with the student's probability, but for a constant
		switch beta {
		case 0:
			loss += t[i] * (lt[i] - ls[i])
			grad[i] = s[i] - t[i]
			continue
		case 1:
			g = ls[i] - lt[i]
			loss += s[i] * g
		default:
			m := mixed(lt[i]+math.Log(beta), ls[i]+math.Log1p(-beta))
			loss += beta*t[i]*(lt[i]-m) + (1-beta)*s[i]*(ls[i]-m)
			g = (1 - beta) * (ls[i] - m)
		}
		grad[i] = g
		inner += s[i] * g
	}
	if beta > 0 {
		for i := range z {
			grad[i] = s[i] * (grad[i] - inner)
		}
	}
	return loss
}

// mixed is log(e^a + e^b).
func mixed(a, b float64) float64 {
	top := max(a, b)
	return top + math.Log1p(math.Exp(min(a, b)-top))
}

// softmax gives probabilities and their logarithms.
func softmax(z []float32) (p, log []float64) {
	p, log = make([]float64, len(z)), make([]float64, len(z))
	top, sum := math.Inf(-1), 0.0
	for _, x := range z {
		top = max(top, float64(x))
	}
	for _, x := range z {
		sum += math.Exp(float64(x) - top)
	}
	lse := top + math.Log(sum)
	for i, x := range z {
		log[i] = float64(x) - lse
		p[i] = math.Exp(log[i])
	}
	return p, log
}
