package sample

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// pick is a token that a sequence has drawn from a row of logits.
type pick struct {
	seq   *sequence
	row   int
	token Token
	guide Guide // behind it
}

// emit draws tokens from the logits of a microbatch. A part that has all tokens of its sequence has a row for the
// next one, and one behind each draft: a row counts where all drafts before it are the tokens that were drawn.
func (e *Engine) emit(b *batch, logits []float32) {
	v, most := e.g.m.Spec.Vocab, e.g.m.Spec.LogitCap
	targets := make([]int32, b.shape.heads)
	for i := range targets {
		targets[i] = -1
	}
	var all []pick
	row := 0
	for _, p := range b.parts {
		for i, d := range e.drawPart(p, logits[row*v:(row+p.heads())*v]) {
			d.row = row + i
			targets[d.row] = d.token.ID
			all = append(all, d)
		}
		row += p.heads()
	}
	lp := e.logProbs(logits, targets, v, most)
	z := make([]float32, v)
	for _, d := range all {
		s := d.seq
		if s.ended {
			continue
		}
		t := Token{ID: d.token.ID, LogProb: lp[d.row], Stop: slices.Contains(s.Stop, d.token.ID)}
		if s.Top > 0 {
			copy(z, logits[d.row*v:(d.row+1)*v])
			capRow(z, most)
			t.Top = likeliest(z, s.Top)
		}
		e.take(s, t, d.guide)
	}
	for _, p := range b.parts {
		e.settle(p)
	}
}

// drawPart draws from the rows of a part for as long as drafts are what is drawn. A first row that cannot be drawn
// from ends the sequence, and no other.
func (e *Engine) drawPart(p part, rows []float32) (out []pick) {
	s, v, most := p.seq, e.g.m.Spec.Vocab, e.g.m.Spec.LogitCap
	z, guide := make([]float32, v), s.guide
	for i := range p.heads() {
		copy(z, rows[i*v:(i+1)*v])
		capRow(z, most)
		why, id := EndNumber, int32(0)
		if top := float64(slices.Max(z)); !math.IsNaN(top) && !math.IsInf(top, 0) { // also of one that is no number
			var ok bool
			id, ok = e.draw.guided(z, &s.Params, &s.seen, guide, Uniform(s.Seed, s.Sample, s.drawn+i))
			if why = EndStuck; ok {
				why = ""
			}
		}
		if why != "" {
			if i == 0 {
				e.end(s, why)
			}
			return out // a later row is drawn from in the next step, as the first
		}
		stop := slices.Contains(s.Stop, id)
		if guide != nil && !stop {
			guide = guide.After(id)
		}
		s.seen.see([]int32{id}, false)
		out = append(out, pick{seq: s, token: Token{ID: id}, guide: guide})
		if stop || s.guide != nil && guide == nil || i == len(s.drafts) || s.drafts[i] != id {
			break
		}
	}
	if n := min(len(s.drafts), p.heads()-1); n > 0 {
		e.stats.Drafted += int64(n)
		e.stats.Accepted += int64(min(len(out)-1, n))
	}
	return out
}

func noNumber(x float32) bool { return x != x }

// take adds a drawn token to its sequence.
func (e *Engine) take(s *sequence, t Token, behind Guide) {
	s.tokens = append(s.tokens, t.ID)
	s.drawn++
	e.stats.Drawn++
	complete := s.guide != nil && behind == nil
	s.guide = behind
	goes := s.Emit(t)
	switch {
	case s.ended: // cancelled by Emit
	case !goes || t.Stop || complete:
		e.end(s, EndStop)
	case s.drawn == s.Max || len(s.tokens) >= e.o.Context:
		e.end(s, EndLength)
	}
}

// settle counts what of a part's rows stands in the pages, and takes back drafts that were not drawn.
func (e *Engine) settle(p part) {
	s := p.seq
	s.drafts = nil
	if s.ended {
		return
	}
	if s.done = p.to; p.heads() > 0 {
		s.done = min(p.to, len(s.tokens)-1)
	}
	e.name(s)
}

// logProbs are those of targets under rows of logits, with the bits of training.
func (e *Engine) logProbs(logits []float32, targets []int32, v int, most float64) []float32 {
	n := len(targets)
	y := tensor.Make(tensor.F32, n)
	e.g.run.Backend.Run(&kernels.Call{Op: kernels.LogitsNLL, In: []*tensor.Tensor{tensor.Of(tensor.F32,
		logits, n, v),
		tensor.Of(tensor.I32, targets, n)}, Out: []*tensor.Tensor{y}, Attr: kernels.Attr{
		I: [4]int{kernels.ActivationNumber(e.g.dtype), e.g.sums[grad.TP]}, F: [2]float64{most}}})
	e.g.run.Backend.Sync()
	out := y.F32()
	for i := range out {
		out[i] = -out[i]
	}
	return out
}

// capRow puts logits under a soft cap, 0 for none.
func capRow(z []float32, most float64) {
	if most == 0 {
		return
	}
	for i, x := range z {
		z[i] = float32(most * math.Tanh(float64(x)/most))
	}
}

// likeliest are the n likeliest tokens with their log-probabilities.
func likeliest(z []float32, n int) []Candidate {
	top, sum := math.Inf(-1), 0.0
	for _, x := range z {
		top = max(top, float64(x))
	}
	for _, x := range z {
		sum += math.Exp(float64(x) - top)
	}
	lse := top + math.Log(sum)
	var out []Candidate
	for i, x := range z {
		c := Candidate{int32(i), float32(float64(x) - lse)}
		at, _ := slices.BinarySearchFunc(out, c, func(a, b Candidate) int {
			switch {
			case a.LogProb > b.LogProb, a.LogProb == b.LogProb && a.ID < b.ID:
				return -1
			case a.ID == b.ID:
				return 0
			}
			return 1
		})
		if at < n {
			out = slices.Insert(out, at, c)
			out = out[:min(len(out), n)]
		}
	}
	return out
}
