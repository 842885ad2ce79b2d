package objective

import "math"

// Side is an answer of a pair.
type Side struct {
	Sum, Ref float64 // Σ log-probability of the answer's tokens, and under the reference
	N        float64 // tokens of the answer
	Margin   float64
}

// gain is how much more the policy likes the answer than the reference does.
func (s *Side) gain() float64 { return s.Sum - s.Ref }

// mean is the log-probability of a token of the answer.
func (s *Side) mean() float64 { return s.Sum / s.N }

// pairwise makes a loss over rows of the loss of one pair, which gives its derivatives by the two sums as
// well. The loss of a language model on the chosen answer is added with its weight.
func pairwise(f func(p *Params, c, r *Side) (loss, dc, dr float64)) func(*Params, *Rows, []float64) float64 {
	return func(p *Params, r *Rows, grad []float64) float64 {
		sides, weights := gather(r)
		loss, by := 0.0, make([]float64, len(sides))
		for i := 0; i+1 < len(sides); i += 2 {
			if sides[i].N == 0 || sides[i+1].N == 0 {
				continue // padding; samples without an answer are set aside before
			}
			l, dc, dr := f(p, &sides[i], &sides[i+1])
			loss += weights[i] * l
			by[i], by[i+1] = weights[i]*dc, weights[i]*dr
		}
		for i, s := range r.Seq {
			if s >= 0 && r.Weight[i] > 0 && int(s) < len(by) {
				grad[i] += by[s]
			}
		}
		return loss + language(p, r, grad)
	}
}

// gather sums up the rows of each sequence, and gives its weight.
func gather(r *Rows) (sides []Side, weights []float64) {
	most := int32(-1)
	for _, s := range r.Seq {
		most = max(most, s)
	}
	sides, weights = make([]Side, most+1+(most+1)%2), make([]float64, most+1+(most+1)%2)
	for i, s := range r.Seq {
		if s < 0 || r.Weight[i] == 0 {
			continue
		}
		x := &sides[s]
		x.Sum += float64(r.LogP[i])
		x.Ref += r.at(i, Reference)
		x.N++
		x.Margin, weights[s] = r.at(i, Margin), float64(r.Weight[i])
	}
	return sides, weights
}

// language adds the weighted loss of a language model.
func language(p *Params, r *Rows, grad []float64) (loss float64) {
	if p.Text == 0 {
		return 0
	}
	for i := range r.LogP {
		if w := p.Text * r.at(i, Language); w != 0 {
			loss -= w * float64(r.LogP[i])
			grad[i] -= w
		}
	}
	return loss
}

// softplus is log(1 + e^x), and sigmoid its derivative.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func sigmoid(x float64) float64 {
	if x < 0 {
		return math.Exp(x) / (1 + math.Exp(x))
	}
	return 1 / (1 + math.Exp(-x))
}
