package serve

import (
	"strings"

	"github.com/lfactor/lfactor/stages/sample"
)

// asking is what completions and chats have in common of a request; most is the new tokens where it does not say.
func (s *Server) asking(b *body, most int) (*asked, error) {
	a := &asked{b: b, stream: or(b.Stream, false), ids: or(b.IDs, false), model: or(b.Model, ""), further: -1}
	if w := b.StreamWith; w != nil {
		a.each = or(w.Each, false)
		a.usage = or(w.Usage, false) || a.each
	}
	var err error
	if a.params, a.stops, a.n, err = s.params(b, most); err != nil {
		return nil, err
	}
	if a.params.Never, err = s.never(b.Bad); err != nil {
		return nil, err
	}
	if b.PromptTop != nil {
		a.further = *b.PromptTop
	}
	id := or(b.RequestID, "")
	switch {
	case b.PromptTop != nil && (a.further < 0 || a.further > topMost):
		return nil, bad("prompt_logprobs", "prompt_logprobs is %d, and not from 0 to %d", a.further, topMost)
	case a.further > 0 && a.stream:
		return nil, bad("prompt_logprobs", "prompt_logprobs are not there with stream: true")
	case b.Only != nil && len(b.Only) == 0:
		return nil, bad("allowed_token_ids", "allowed_token_ids is an empty list: no token could be drawn")
	case b.Salt != nil && (*b.Salt == "" || len(*b.Salt) > nameMost || strings.ContainsAny(*b.Salt, "@/\\\x00")):
		return nil, bad("cache_salt", "cache_salt is no text of 1 to %d bytes without @, /, \\ and NUL", nameMost)
	case len(id) > nameMost || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, bad("request_id", "request_id is no text of at most %d printable letters", nameMost)
	case b.Side != nil && *b.Side != "left" && *b.Side != "right":
		return nil, bad("truncation_side", "truncation_side is %.40q, and neither left nor right", *b.Side)
	}
	return a, nil
}

const (
	topMost   = 20   // likeliest tokens that a request may ask for
	nameMost  = 128  // bytes of a client's names
	neverMost = 1024 // lists of tokens that an answer may not have
)

// never are the tokens of words that an answer may not have, at the beginning of a text and within it, as
// vLLM has them: with a space before them where that makes another token of the first, and no more of them.
func (s *Server) never(words []string) (out [][]int32, err error) {
	for _, w := range words {
		ids, err := s.tok.TryEncode(strings.TrimLeft(w, " \t\r\n"), false)
		if err != nil || len(ids) == 0 {
			return nil, bad("bad_words", "the word %.40q has no tokens", w)
		}
		out = append(out, ids)
		spaced, err := s.tok.TryEncode(" "+strings.TrimLeft(w, " \t\r\n"), false)
		if err == nil && len(spaced) == len(ids) && spaced[0] != ids[0] {
			out = append(out, spaced)
		}
		if len(out) > neverMost {
			return nil, bad("bad_words", "bad_words are more than %d lists of tokens", neverMost)
		}
	}
	return out, nil
}

// truncate leaves the last tokens of a prompt, or the first, where the request bounds them.
func (s *Server) truncate(ids []int32, a *asked) ([]int32, error) {
	if a.b.Truncate == nil {
		return ids, nil
	}
	n, most := *a.b.Truncate, max(1, s.context-min(a.params.Max, s.context-1))
	if n == -1 {
		n = most
	}
	switch {
	case n < 1 || n > s.context:
		return nil, bad("truncate_prompt_tokens", "truncate_prompt_tokens is %d, and neither -1 nor from 1 to %d", n, s.context)
	case n >= len(ids):
		return ids, nil
	case len(a.files) > 0:
		return nil, bad("truncate_prompt_tokens", "a prompt with images is not cut")
	case or(a.b.Side, "left") == "right":
		return ids[:n], nil
	}
	return ids[len(ids)-n:], nil
}

// scored are the log-probabilities of a prompt's tokens, as vLLM writes them: none for the first.
func (s *speller) scored(tokens []sample.Token) []any {
	out := []any{nil}
	for _, t := range tokens {
		x := map[int32]any{}
		one := func(id int32, p float32, rank int) {
			text, _ := s.said(id)
			x[id] = map[string]any{"logprob": p, "rank": rank, "decoded_token": text}
		}
		for i, k := range t.Top {
			one(k.ID, k.LogProb, i+1)
		}
		one(t.ID, t.LogProb, t.Rank)
		out = append(out, x)
	}
	return out
}
