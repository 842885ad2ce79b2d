package sample

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

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

// emit draws tokens from the logits of a microbatch. A part that has all tokens of its sequence has a row for the next
// one, and one behind each draft: a row counts where all drafts before it are the tokens that were drawn.
func (e *Engine) emit(b *batch, logits []float32) {
	v, most := e.g.m.Spec.Vocab, e.g.m.Spec.LogitCap
	targets := make([]int32, b.shape.heads)
	for i := range targets {
		targets[i] = -1
	}
	var all []pick
	row := 0
	for i, c := range e.choose(b.parts, logits) {
		p := b.parts[i]
		n := p.scores()
		for k := range n {
			targets[row+k] = p.seq.Prompt[p.seq.scored+k+1]
		}
		for k, d := range c.picks {
			d.row = row + n + k
			targets[d.row] = d.token.ID
			all = append(all, d)
		}
		row += p.heads()
		e.count(p, c)
	}
	lp := e.logProbs(logits, targets, v, most)
	z := make([]float32, v)
	token := func(row, top int) Token {
		t := Token{ID: targets[row], LogProb: lp[row]}
		if top > 0 {
			copy(z, logits[row*v:(row+1)*v])
			capRow(z, most)
			t.Top = likeliest(z, top, logSum(z, t.ID, t.LogProb))
		}
		return t
	}
	row = 0
	for _, p := range b.parts {
		s, heads := p.seq, p.heads()
		for k := range p.scores() {
			t := token(row+k, s.Further)
			t.Rank = rank(logits[(row+k)*v:(row+k+1)*v], t.ID)
			s.scored++
			s.Scored(t)
		}
		row += heads
	}
	for _, d := range all {
		if s := d.seq; !s.ended {
			t := token(d.row, s.Top)
			t.Stop = slices.Contains(s.Stop, t.ID)
			e.take(s, t, d.guide)
		}
	}
	for _, p := range b.parts {
		e.settle(p)
	}
}

// chosen is what the rows of a part have drawn, and why its first row has drawn nothing, "" where it has.
type chosen struct {
	picks []pick
	why   End
}

// choose draws from the rows of all parts, of which logits has all, on as many threads as the model
// computes with. Forms are not for several at once.
func (e *Engine) choose(parts []part, logits []float32) []chosen {
	out, rows := make([]chosen, len(parts)), make([][]float32, len(parts))
	at, v := 0, e.g.m.Spec.Vocab
	for i, p := range parts {
		rows[i] = logits[(at+p.scores())*v : (at+p.heads())*v]
		at += p.heads()
	}
	threads := 1
	if t, ok := e.g.run.Backend.(interface{ Threads() int }); ok {
		threads = max(1, min(t.Threads(), len(parts)))
	}
	for len(e.draw) < threads {
		e.draw = append(e.draw, drawer{})
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for k := range threads {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(parts) {
					return
				}
				if parts[i].seq.guide == nil {
					out[i] = e.drawPart(&e.draw[k], parts[i], rows[i])
				}
			}
		})
	}
	all.Wait()
	for i, p := range parts {
		if p.seq.guide != nil {
			out[i] = e.drawPart(&e.draw[0], p, rows[i])
		}
	}
	return out
}

// drawPart draws from the rows of a part for as long as drafts are what is drawn. A row behind the first that cannot be
// drawn from is drawn from in the next step, as the first. It changes nothing but the part's sequence.
func (e *Engine) drawPart(d *drawer, p part, rows []float32) (c chosen) {
	s, v, most := p.seq, e.g.m.Spec.Vocab, e.g.m.Spec.LogitCap
	guide := s.guide
	for i := range p.draws() {
		z := rows[i*v : (i+1)*v]
		if most != 0 {
			d.capped = append(d.capped[:0], z...)
			z = d.capped
			capRow(z, most)
		}
		why, id, ok := EndNumber, int32(0), false
		if best, finite := largest(z); finite {
			if id, ok = best, true; !s.plain() || guide != nil {
				id, ok = d.guided(z, &s.Params, &s.seen, guide, Uniform(s.Seed, s.Sample, s.drawn+i))
			}
			why = EndStuck
		}
		if !ok {
			if i == 0 {
				c.why = why
			}
			return c
		}
		stop := slices.Contains(s.Stop, id)
		if guide != nil && !stop {
			guide = guide.After(id)
		}
		s.seen.see([]int32{id}, false)
		c.picks = append(c.picks, pick{seq: s, token: Token{ID: id}, guide: guide})
		if stop || s.guide != nil && guide == nil || i == len(s.drafts) || s.drafts[i] != id {
			break
		}
	}
	return c
}

// count ends a sequence that cannot be drawn for, and counts what its drafts were worth.
func (e *Engine) count(p part, c chosen) {
	if c.why != "" {
		e.end(p.seq, c.why)
		return
	}
	if n := min(len(p.seq.drafts), p.draws()-1); n > 0 && len(c.picks) > 0 {
		e.stats.Drafted += int64(n)
		e.stats.Accepted += int64(min(len(c.picks)-1, n))
	}
}

// largest is the first of the largest logits, and whether there is one that is finite and none is no number.
func largest(z []float32) (best int32, finite bool) {
	top, none := float32(math.Inf(-1)), false
	for i, x := range z {
		if none = none || x != x; x > top {
			best, top = int32(i), x
		}
	}
	return best, !none && !math.IsInf(float64(top), 0)
}

// rank is the place of a token among all by its logit, from 1: of equals all have the last one's, as in vLLM.
func rank(z []float32, id int32) (n int) {
	for _, x := range z {
		if x >= z[id] {
			n++
		}
	}
	return n
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
	if s.done = p.to; p.draws() > 0 {
		s.done = min(p.to, len(s.tokens)-1)
	}
	e.name(s)
}

// logProbs are those of targets under rows of logits, with the bits of training.
func (e *Engine) logProbs(logits []float32, targets []int32, v int, most float64) []float32 {
	n := len(targets)
	y := tensor.Make(tensor.F32, n)
	e.g.run.Backend.Run(&kernels.Call{Op: kernels.LogitsNLL, In: []*tensor.Tensor{tensor.Of(tensor.F32, logits, n, v),
		tensor.Of(tensor.I32, targets, n)}, Out: []*tensor.Tensor{y},
		Attr: kernels.Attr{I: [4]int{kernels.ActivationNumber(e.g.dtype), e.g.sums[grad.TP]}, F: [2]float64{most}}})
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

// logSum is the logarithm of the sum of e^z that a drawn token's log-probability was taken with, so that what is said
// of others, and of the token among them, is by the same sum; where it has none, a sum of its own.
func logSum(z []float32, drawn int32, logProb float32) float64 {
	if lse := float64(z[drawn]) - float64(logProb); !math.IsNaN(lse) && !math.IsInf(lse, 0) {
		return lse
	}
	top, sum := math.Inf(-1), 0.0
	for _, x := range z {
		top = max(top, float64(x))
	}
	for _, x := range z {
		sum += math.Exp(float64(x) - top)
	}
	return top + math.Log(sum)
}

// likeliest are the n likeliest tokens with their log-probabilities, of logits whose logarithm of the sum of
// exponentials is lse.
func likeliest(z []float32, n int, lse float64) []Candidate {
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
