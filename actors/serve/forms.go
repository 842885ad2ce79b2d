package serve

import (
	"net/http"
)

// completions answers POST /v1/completions.
func (s *Server) completions(w http.ResponseWriter, r *http.Request) {
	var b completionBody
	err := s.read(w, r, &b)
	if err == nil {
		err = s.completion(w, r, &b)
	}
	if err != nil {
		s.fail(w, err)
	}
}

func (s *Server) completion(w http.ResponseWriter, r *http.Request, b *completionBody) error {
	a := &asked{stream: or(b.Stream, false), ids: or(b.IDs, false)}
	a.usage = b.StreamWith != nil && or(b.StreamWith.Usage, false)
	a.model = or(b.Model, "")
	var err error
	if a.params, a.stops, a.n, err = s.params(&b.body, 16); err != nil {
		return err
	}
	if a.prompts, err = s.prompts(b.Prompt); err != nil {
		return err
	}
	a.top = or(b.LogProbs, 0)
	switch {
	case a.top < 0 || a.top > 20:
		return bad("logprobs", "logprobs is %d, and not from 0 to 20", a.top)
	case or(b.Echo, false):
		return bad("echo", "prompts are not repeated")
	case b.Suffix != nil && *b.Suffix != "":
		return bad("suffix", "nothing is put in front of a suffix")
	case b.BestOf != nil && *b.BestOf != a.n:
		return bad("best_of", "best_of is %d and n is %d: all answers are given", *b.BestOf, a.n)
	}
	if err := s.guided(a, &b.formatBody); err != nil {
		return err
	}
	a.form = &completionForm{s, b.LogProbs != nil, map[int]*place{}}
	s.serve(w, r, a)
	return nil
}

// completionForm writes completions. It is of one request.
type completionForm struct {
	s        *Server
	logProbs bool
	places   map[int]*place // of answers
}

func (*completionForm) object() (whole, part string) { return "text_completion", "text_completion" }

func (*completionForm) prefix() string { return "cmpl" }

func (f *completionForm) choice(i int, c *choice) map[string]any {
	x := map[string]any{"text": c.text, "logprobs": nil}
	if !f.logProbs {
		return x
	}
	if f.places[i] == nil {
		f.places[i] = &place{}
	}
	tokens, probs, tops, offsets := []string{}, []float32{}, []any{}, []int{}
	for _, t := range c.tokens {
		if t.Stop {
			continue
		}
		text, _ := f.s.spell.said(t.ID)
		ids, each := []int32{t.ID}, []float32{t.LogProb}
		for _, k := range t.Top {
			ids, each = append(ids, k.ID), append(each, k.LogProb)
		}
		tokens, probs = append(tokens, text), append(probs, t.LogProb)
		tops, offsets = append(tops, f.s.spell.likely(ids, each)), append(offsets, f.places[i].pass(&f.s.spell, t.ID))
	}
	x["logprobs"] = map[string]any{"tokens": tokens, "token_logprobs": probs, "top_logprobs": tops,
		"text_offset": offsets}
	return x
}

func (f *completionForm) delta(i int, c *choice, _ bool, _ any) map[string]any { return f.choice(i, c) }

var _ = []form{&completionForm{}, &chatForm{}}
