package objective

import (
	"math"
	"slices"
)

// Figure is a number of a step that is looked at beside the loss: a mean over pairs, answers or tokens.
type Figure int

// The figures, of which Figures has the names.
const (
	ChosenReward Figure = iota
	RejectedReward
	Margins
	Accuracies
	ChosenLogP
	RejectedLogP
	NLL
	KL
	Entropy
	ClipLow
	ClipHigh
	ClipRegion
)

// Figures are the columns of metrics that figures are, as TRL names them.
var Figures = [...]string{"rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen",
	"logps/rejected", "nll_loss", "kl", "entropy", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean"}

// Looked is how many numbers Look gives.
const Looked = 1 + 2*len(Figures)

// see adds to what a figure is the mean of.
func (r *Rows) see(f Figure, x, n float64) {
	if r.seen != nil {
		r.seen[1+2*f] += x
		r.seen[2+2*f] += n
	}
}

// Look is what is seen of rows beside their loss: how far the sampler is from the trainer, max |ℓ − ℓ'| of tokens drawn
// by the weights that train on them, with ℓ'; and of each figure a sum and of how many. Those of several microbatches add up.
// The loss moves by none of it.
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
			r.see(Entropy, -x, 1)
			if q := r.at(i, Reference) - x; l.Compares(*p) {
				r.see(KL, math.Exp(q)-q-1, 1)
			}
		}
		if r.at(i, Fresh) != 0 {
			r.seen[0] = max(r.seen[0], math.Abs(float64(r.LogP[i])-r.at(i, Old))) // a NaN stays
		}
	}
	return r.seen
}

// answers sees pairs, or single answers with one of another prompt behind each.
func (l *Loss) answers(p *Params, r *Rows) {
	sides, _ := gather(r)
	for i := 0; i+1 < len(sides); i += 2 {
		c, d := &sides[i], &sides[i+1]
		if c.N == 0 || d.N == 0 {
			continue
		}
		if l.Judged {
			r.see(KL, d.gain(), 1)
			l.side(p, r, c, c.Margin >= 0)
			continue
		}
		x, y := l.side(p, r, c, true), l.side(p, r, d, false)
		won := 0.0
		if x > y {
			won = 1
		}
		r.see(Margins, x-y, 1)
		r.see(Accuracies, won, 1)
	}
	if p.Text != 0 || l.Prompts {
		for i, x := range r.LogP {
			r.see(NLL, -r.at(i, Language)*float64(x), r.at(i, Language))
		}
	}
}

// side sees an answer, and gives its reward: what the loss compares, times β.
func (l *Loss) side(p *Params, r *Rows, s *Side, chosen bool) (reward float64) {
	n, worth, logP := 1.0, RejectedReward, RejectedLogP
	if chosen {
		worth, logP = ChosenReward, ChosenLogP
	}
	if l.Mean {
		n = s.N
	}
	if reward = s.Sum; !l.Score {
		reward = p.Beta * s.gain() / n
		r.see(logP, s.Sum/n, 1)
	}
	r.see(worth, reward, 1)
	return reward
}

// clips sees whether a ratio is out of its bounds where the advantage pulls it further, as far as the loss has bounds.
func (r *Rows) clips(p *Params, c, a float64) {
	low, high := 0.0, 0.0
	if c < 1-p.ClipLow && a < 0 {
		low = 1
	}
	if c > 1+p.ClipHigh && a > 0 {
		high = 1
	}
	r.see(ClipLow, low, 1)
	r.see(ClipHigh, high, 1)
	r.see(ClipRegion, low+high, 1)
}
