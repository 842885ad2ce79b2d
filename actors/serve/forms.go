package serve

import (
	"net/http"
	"slices"
)

// completion answers POST /v1/completions.
func (s *Server) completion(w http.ResponseWriter, r *http.Request, b *completionBody) error {
	a, err := s.asking(&b.body, 16)
	if err != nil {
		return err
	}
	f := &completionForm{s: s, logProbs: b.LogProbs != nil, places: map[int]*place{}, asked: a}
	if a.prompts, f.texts, err = s.prompts("prompt", b.Prompt, or(b.AddSpecial, true)); err != nil {
		return err
	}
	a.form, a.top = f, or(b.LogProbs, 0)
	switch {
	case a.top < 0 || a.top > topMost:
		return bad("logprobs", "logprobs is %d, and not from 0 to %d", a.top, topMost)
	case b.Suffix != nil && *b.Suffix != "":
		return bad("suffix", "nothing is put in front of a suffix")
	case b.BestOf != nil && *b.BestOf != a.n:
		return bad("best_of", "best_of is %d and n is %d: all answers are given", *b.BestOf, a.n)
	}
	if err := s.guided(a, &b.formatBody); err != nil {
		return err
	}
	if f.echo = or(b.Echo, false); f.echo && a.further < 0 && f.logProbs {
		a.further = a.top
	}
	for i, ids := range a.prompts {
		if a.prompts[i], err = s.truncate(ids, a); err != nil {
			return err
		}
		if len(a.prompts[i]) < len(ids) {
			f.texts = nil
		}
	}
	s.serve(w, r, a)
	return nil
}

// said is a token's text and bytes, or its number where the request asks for that.
func (f *completionForm) said(id int32) (string, []int) { return f.s.spell.called(id, f.asked.b) }

// completionForm writes completions. It is of one request.
type completionForm struct {
	s        *Server
	logProbs bool
	places   map[int]*place // of answers
	asked    *asked
	echo     bool     // prompts are repeated
	texts    []string // of prompts, nil where they are tokens
}

func (*completionForm) object() (whole, part string) { return "text_completion", "text_completion" }

func (*completionForm) prefix() string { return "cmpl" }

func (*completionForm) head(map[string]any) {}

func (f *completionForm) choice(i int, c *choice) map[string]any {
	x := map[string]any{"text": c.text, "logprobs": nil}
	first := f.echo && f.places[i] == nil
	if f.places[i] == nil {
		f.places[i] = &place{}
	}
	if first {
		text := f.s.tok.Decode(c.of.request.Prompt, false)
		if f.texts != nil {
			text = f.texts[i/f.asked.n]
		}
		x["text"] = text + c.text
	}
	if !f.logProbs {
		return x
	}
	tokens, probs, tops, offsets := []string{}, []any{}, []any{}, []int{}
	all := c.tokens
	if first {
		text, _ := f.said(c.of.request.Prompt[0])
		tokens, probs, tops = append(tokens, text), append(probs, nil), append(tops, nil)
		offsets = append(offsets, f.places[i].pass(&f.s.spell, c.of.request.Prompt[0]))
		all = append(slices.Clone(c.of.scored), all...)
	}
	for _, t := range all {
		if t.Stop {
			continue
		}
		text, _ := f.said(t.ID)
		ids, each := []int32{t.ID}, []float32{t.LogProb}
		for _, k := range t.Top {
			ids, each = append(ids, k.ID), append(each, k.LogProb)
		}
		tokens, probs = append(tokens, text), append(probs, t.LogProb)
		tops, offsets = append(tops, f.s.spell.likely(ids, each, f.asked.b)), append(offsets, f.places[i].pass(&f.s.spell, t.ID))
	}
	x["logprobs"] = map[string]any{"tokens": tokens, "token_logprobs": probs, "top_logprobs": tops,
		"text_offset": offsets}
	return x
}

func (f *completionForm) delta(i int, c *choice, _ bool, _ any) map[string]any { return f.choice(i, c) }

var _ = []form{&completionForm{}, &chatForm{}}
