package search

import (
	"fmt"
	"slices"
)

// Tower is the vision encoder of a composed model, with its projector.
type Tower struct {
	Blocks int                             // before the decoder's
	TP     []int                           // allowed degrees
	Cut    func(stages int) ([]int, error) // borders of the decoder's stages, without the encoder's blocks
}

// Encoder is where the vision encoder of a candidate runs; the zero value is that of a model of text alone.
type Encoder struct {
	Over  string `json:"over"`            // none, first, all or own, as plan.encoder.over
	TP    int    `json:"tp"`              // of the encoder, where it has a mesh of its own
	Ranks int    `json:"ranks,omitempty"` // of its own for each replica
	Ahead int    `json:"ahead,omitempty"` // microbatches that it may run ahead at most; 0 is as many as are fastest
}

// The places of an encoder, by the words of plan.encoder.over.
const (
	OverNone  = "none"
	OverFirst = "first"
	OverAll   = "all"
	OverOwn   = "own"
)

// apart reports whether the encoder has a mesh of its own.
func (e Encoder) apart() bool { return e.Over != "" && e.Over != OverNone }

// String names the place behind a plan.
func (e Encoder) String() string {
	if e.Over == "" {
		return ""
	}
	return ", encoder " + e.Short()
}

// Short is the place in a table.
func (e Encoder) Short() string {
	text := e.Over
	if e.apart() {
		text += fmt.Sprintf(" tp%d", e.TP)
	}
	if e.Ranks > 0 {
		text += fmt.Sprintf(" of %d", e.Ranks)
	}
	if e.Ahead > 0 {
		text += fmt.Sprintf(", %d ahead", e.Ahead)
	}
	return text
}

// slots is the number of ranks of a replica that encode.
func (e Encoder) slots(c *Candidate) int {
	switch e.Over {
	case OverAll:
		return c.TP * c.PP
	case OverOwn:
		return e.Ranks
	}
	return c.TP
}

// Replicas is the number of replicas of the encoder in one of the decoder.
func (e Encoder) Replicas(c *Candidate) int { return e.slots(c) / e.TP }

// places lists where the encoder may run beside a decoder, on the decoder's ranks.
func (t *Tower) places(c *Candidate) (out []Encoder) {
	if t == nil {
		return []Encoder{{}}
	}
	if slices.Contains(t.TP, c.TP) {
		out = append(out, Encoder{Over: OverNone, TP: c.TP})
	}
	for _, tp := range t.TP {
		if c.TP%tp != 0 {
			continue
		}
		out = append(out, Encoder{Over: OverFirst, TP: tp})
		if c.PP > 1 {
			out = append(out, Encoder{Over: OverAll, TP: tp})
		}
	}
	return
}

// ownMax bounds how many numbers of ranks of its own are tried for an encoder.
const ownMax = 12

// owned lists the plans in which each replica has some ranks for its encoder alone.
func (s *Space) owned() (out []Candidate) {
	for _, dp := range divisors(s.Devices) {
		each := s.Devices / dp
		tried := 0
		for n := 1; n <= each/2 && tried < ownMax; n += max(1, n/4) {
			tried++
			out = append(out, s.meshes(dp*(each-n), func(c *Candidate) (out []Encoder) {
				// a group of the decoder would lie on two hosts
				if c.DP != dp || s.Machine.Devices%c.TP != 0 {
					return nil
				}
				for _, tp := range s.Tower.TP {
					if n%tp == 0 && tp <= s.Machine.Devices {
						out = append(out, Encoder{Over: OverOwn, TP: tp, Ranks: n})
					}
				}
				return
			})...)
		}
	}
	return
}

// encode adds an encoder with a mesh of its own to the closed forms: it works where its ranks would wait for
// the pipeline, which takes pipe seconds of which each rank is busy for some; what does not fit there comes
// on top, and so do the first microbatch's way in and the last one's back. It returns how much longer the
// step is, and raises the candidate's memory.
func (s *Space) encode(c *Candidate, pipe float64, busy []float64, memory []int64) (float64, error) {
	e := c.Encoder
	blocks, err := s.Profile(Variant{TP: e.TP, Batch: c.Batch, Recompute: c.Recompute})
	if err != nil {
		return 0, err
	}
	t := s.sum(blocks[:s.Tower.Blocks], -1)
	n := e.Replicas(c)
	one := t.F + t.I + t.W
	load := float64((c.Micro+n-1)/n) * one
	own := *c
	own.DP, own.TP = c.DP*n, e.TP
	live := int64(min(c.Micro, max(1, c.PP/n)+1))
	held := s.Base(&own, t.Weights) + live*t.Held + t.PeakB - t.Held
	late := 0.0
	switch e.Over {
	case OverOwn:
		late = max(0, load-pipe)
		c.Memory = max(c.Memory, held)
	default:
		for r := range busy {
			if r == 0 || e.Over == OverAll {
				late = max(late, load-(pipe-busy[r]))
				c.Memory = max(c.Memory, memory[r]+held)
			}
		}
	}
	return late + one + 2*s.Link(c).Of(t.Port) + s.Update(&own, t.Weights, 0), nil
}
