package serve

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/lfactor/lfactor/dataset"
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
	a.form = completionForm{s, b.LogProbs != nil}
	s.serve(w, r, a)
	return nil
}

// completionForm writes completions.
type completionForm struct {
	s        *Server
	logProbs bool
}

func (completionForm) object() (whole, part string) { return "text_completion", "text_completion" }

func (f completionForm) choice(_ int, c *choice) map[string]any {
	x := map[string]any{"text": c.text, "logprobs": nil}
	if !f.logProbs {
		return x
	}
	tokens, probs, tops, offsets, at := []string{}, []float32{}, []any{}, []int{}, 0
	for _, t := range c.tokens {
		if t.Stop {
			continue
		}
		text, _ := said(f.s.tok, t.ID)
		top := map[string]float32{}
		for _, k := range t.Top {
			likely, _ := said(f.s.tok, k.ID)
			top[likely] = k.LogProb
		}
		top[text] = t.LogProb
		tokens, probs, tops, offsets = append(tokens, text), append(probs, t.LogProb), append(tops, top),
			append(offsets, at)
		at += len(text)
	}
	x["logprobs"] = map[string]any{"tokens": tokens, "token_logprobs": probs, "top_logprobs": tops,
		"text_offset": offsets}
	return x
}

func (f completionForm) delta(i int, c *choice, _ bool, _ any) map[string]any { return f.choice(i, c) }

// chats answers POST /v1/chat/completions.
func (s *Server) chats(w http.ResponseWriter, r *http.Request) {
	var b chatBody
	err := s.read(w, r, &b)
	if err == nil {
		err = s.chat(w, r, &b)
	}
	if err != nil {
		s.fail(w, err)
	}
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request, b *chatBody) error {
	if b.MaxNew != nil {
		if b.Max != nil && *b.Max != *b.MaxNew {
			return bad("max_tokens", "max_tokens and max_completion_tokens say different things")
		}
		b.Max = b.MaxNew
	}
	a := &asked{form: chatForm{s, or(b.LogProbs, false)}, stream: or(b.Stream, false), ids: or(b.IDs, false)}
	a.usage = b.StreamWith != nil && or(b.StreamWith.Usage, false)
	var err error
	if a.params, a.stops, a.n, err = s.params(&b.body, s.context); err != nil {
		return err
	}
	a.top = or(b.TopLogProbs, 0)
	switch {
	case a.top < 0 || a.top > 20:
		return bad("top_logprobs", "top_logprobs is %d, and not from 0 to 20", a.top)
	case a.top > 0 && !or(b.LogProbs, false):
		return bad("top_logprobs", "top_logprobs wants logprobs")
	case b.Format != nil && b.Format.Type != "text":
		return bad("response_format", "answers are text; %s is not there yet", b.Format.Type)
	case len(b.Tools) > 0:
		return bad("tools", "calls of tools are not there yet")
	}
	prompt, err := s.conversation(b)
	if err != nil {
		return err
	}
	a.prompts = [][]int32{prompt}
	s.serve(w, r, a)
	return nil
}

// chatRoles are the roles of messages that templates write.
var chatRoles = []string{"system", "developer", "user", "assistant", "tool"}

// conversation writes messages by the chat template.
func (s *Server) conversation(b *chatBody) ([]int32, error) {
	if s.noChat != nil {
		return nil, bad("messages", "the model has no chats: %v", s.noChat)
	}
	if len(b.Messages) == 0 {
		return nil, bad("messages", "the request has no messages")
	}
	var turns []dataset.Message
	for i, raw := range b.Messages {
		var m struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		}
		if json.Unmarshal(raw, &m) != nil || !slices.Contains(chatRoles, m.Role) {
			return nil, bad("messages", "message %d has the role %.40q, and is of none of %v", i, m.Role,
				chatRoles)
		}
		text, err := contentText(m.Content)
		if err != nil {
			return nil, bad("messages", "message %d: %v", i, err)
		}
		turns = append(turns, dataset.Message{Role: m.Role, Content: text})
	}
	extra := map[string]any{}
	for k, v := range b.Variables {
		var x any
		if err := json.Unmarshal(v, &x); err != nil {
			return nil, bad("chat_template_kwargs", "%s: %v", k, err)
		}
		extra[k] = x
	}
	text, err := s.template.Render(turns, nil, true, extra)
	if err != nil {
		return nil, bad("messages", "%v", err)
	}
	ids, err := s.tok.TryEncode(text, false)
	if err != nil {
		return nil, bad("messages", "%v", err)
	}
	return ids, nil
}

// contentText is a message's text: one, or a list of parts that are texts.
func contentText(raw json.RawMessage) (string, error) {
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", bad("", "its content is no text and no list of parts")
	}
	for _, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return "", bad("", "its content has a part of the type %.40q, and the model reads text", p.Type)
		}
		text += *p.Text
	}
	return text, nil
}

// chatForm writes answers in conversations.
type chatForm struct {
	s        *Server
	logProbs bool
}

func (chatForm) object() (whole, part string) { return "chat.completion", "chat.completion.chunk" }

func (f chatForm) choice(_ int, c *choice) map[string]any {
	return map[string]any{"message": map[string]any{"role": "assistant", "content": c.text, "refusal": nil},
		"logprobs": f.probs(c)}
}

func (f chatForm) delta(_ int, c *choice, first bool, _ any) map[string]any {
	d := map[string]any{}
	if first {
		d["role"] = "assistant"
	}
	if first || c.text != "" {
		d["content"] = c.text
	}
	return map[string]any{"delta": d, "logprobs": f.probs(c)}
}

// probs are the log-probabilities of an answer's tokens, nil where nobody asked for them.
func (f chatForm) probs(c *choice) any {
	if !f.logProbs {
		return nil
	}
	list := []any{}
	one := func(id int32, p float32) map[string]any {
		text, b := said(f.s.tok, id)
		return map[string]any{"token": text, "logprob": p, "bytes": b}
	}
	for _, t := range c.tokens {
		if t.Stop {
			continue
		}
		top := []any{}
		for _, k := range t.Top {
			top = append(top, one(k.ID, k.LogProb))
		}
		x := one(t.ID, t.LogProb)
		x["top_logprobs"] = top
		list = append(list, x)
	}
	return map[string]any{"content": list, "refusal": nil}
}

var _ = []form{completionForm{}, chatForm{}}
