package objective

import (
	"math"
	"slices"
)

// Figures are numbers of a step that are looked at beside its loss, means over pairs, answers or tokens: columns of
// metrics, as TRL names them.
var Figures = []string{"rewards/chosen", "rewards/rejected", "rewards/accuracies", "logps/chosen", "logps/rejected",
	"logits/chosen", "logits/rejected", "nll_loss", "kl", "entropy", "clip_ratio/low_mean", "clip_ratio/high_mean",
	"clip_ratio/region_mean"}

// Looked is how many numbers Look gives.
var Looked = 1 + 2*len(Figures)

// see adds to what a figure is the mean of.
func (r *Rows) see(figure string, x, n float64) {
	if r.seen != nil {
		f := slices.Index(Figures, figure)
		r.seen[1+2*f] += x
		r.seen[2+2*f] += n
	}
}

// Look is what is seen of rows beside their loss: how far the sampler is from the trainer, max |ℓ − ℓ'| of tokens drawn
// by the weights that train on them, with ℓ'; and of each figure a sum and of how many. Those of microbatches add up.
func (l *Loss) Look(p *Params, r *Rows) []float64 {
	r.seen = make([]float64, Looked)
	if l.Policy == nil {
		l.answers(p, r)
		return r.seen
	}
	l.Of(p, r, make([]float64, len(r.LogP))) // sees what it clips
	if !slices.Contains(l.Reads, "clip_low") {
		clear(r.seen) // its ratios have other bounds
	}
	for i, s := range r.Seq {
		if x := float64(r.LogP[i]); s >= 0 && r.Weight[i] != 0 {
			r.see("entropy", -x, 1)
			if q := r.at(i, Reference) - x; l.Compares(*p) {
				r.see("kl", math.Exp(q)-q-1, 1)
			}
		}
		if r.at(i, Fresh) != 0 {
			r.seen[0] = max(r.seen[0], math.Abs(float64(r.LogP[i])-r.at(i, Old))) // a NaN stays
		}
	}
	return r.seen
}

// answers sees pairs, or single answers with one of another prompt behind each. A reward is β times what a loss compares.
func (l *Loss) answers(p *Params, r *Rows) {
	sides, _ := gather(r)
	side := func(s *Side, which string) (reward float64) {
		n := 1.0
		if l.Mean {
			n = s.N
		}
		if reward = s.Sum; !l.Score {
			reward = p.Beta * s.gain() / n
			r.see("logps/"+which, s.Sum/n, 1)
		}
		r.see("rewards/"+which, reward, 1)
		return reward
	}
	for i := 0; i+1 < len(sides); i += 2 {
		switch c, d := &sides[i], &sides[i+1]; {
		case c.N == 0 || d.N == 0:
		case l.Judged:
			r.see("kl", d.gain(), 1)
			side(c, map[bool]string{true: "chosen", false: "rejected"}[c.Margin >= 0])
		default:
			x := side(c, "chosen") - side(d, "rejected")
			r.see("rewards/accuracies", one(x > 0), 1)
		}
	}
	for i, x := range r.Logit {
		if s := r.Seq[i]; s >= 0 && r.Weight[i] != 0 && !(l.Judged && s%2 == 1) && sides[s^1].N != 0 {
			chosen := s%2 == 0 && !(l.Judged && sides[s].Margin < 0)
			r.see("logits/"+map[bool]string{true: "chosen", false: "rejected"}[chosen], float64(x), 1)
		}
	}
	for i, x := range r.LogP {
		if w := r.at(i, Language); p.Text != 0 || l.Prompts {
			r.see("nll_loss", -w*float64(x), w)
		}
	}
}

// clips sees whether a ratio is out of its bounds where the advantage pulls it further.
func (r *Rows) clips(p *Params, c, a float64) {
	low, high := one(c < 1-p.ClipLow && a < 0), one(c > 1+p.ClipHigh && a > 0)
	r.see("clip_ratio/low_mean", low, 1)
	r.see("clip_ratio/high_mean", high, 1)
	r.see("clip_ratio/region_mean", low+high, 1)
}

// one is 1 for true.
func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
