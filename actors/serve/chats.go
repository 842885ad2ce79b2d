package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/dataset/token/jinja"
	"github.com/lfactor/lfactor/stages/sample"
)

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
	f := &chatForm{s: s, logProbs: or(b.LogProbs, false)}
	a := &asked{form: f, stream: or(b.Stream, false), ids: or(b.IDs, false)}
	f.asked = a
	a.usage = b.StreamWith != nil && or(b.StreamWith.Usage, false)
	a.model = or(b.Model, "")
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
	}
	if s.noChat != nil {
		return bad("messages", "the model has no chats: %v", s.noChat)
	}
	t, err := s.offered(b)
	if err != nil {
		return err
	}
	prompt, err := s.conversation(b, t, a)
	if err != nil {
		return err
	}
	if err := s.guided(a, &b.formatBody); err != nil {
		return err
	}
	if t != nil && t.style != nil {
		if a.guide != nil {
			return bad("response_format", "the form of an answer that may call tools is that of the calls")
		}
		if err := s.toolGuide(a, t); err != nil {
			return err
		}
		f.style, a.shown = t.style, t.style.shown(s.tok)
	}
	a.prompts = [][]int32{prompt}
	s.serve(w, r, a)
	return nil
}

// chatRoles are the roles of messages that templates write.
var chatRoles = []string{"system", "developer", "user", "assistant", "tool"}

// conversation writes messages by the chat template, and says what images they have.
func (s *Server) conversation(b *chatBody, t *tools, a *asked) ([]int32, error) {
	if len(b.Messages) == 0 {
		return nil, bad("messages", "the request has no messages")
	}
	var turns []dataset.Message
	var images [][]byte
	for i, raw := range b.Messages {
		m, seen, err := turn(raw, s.lens != nil)
		if err != nil {
			return nil, bad("messages", "message %d: %v", i, err)
		}
		if turns, images = append(turns, m), append(images, seen...); len(images) > imagesMost {
			return nil, bad("messages", "the request has more than %d images", imagesMost)
		}
	}
	extra := map[string]any{}
	for k, v := range b.Variables {
		extra[k] = v
	}
	var list any
	if t != nil {
		list = t.list
	}
	today := *s.template
	today.Now = time.Now()
	text, err := today.Render(turns, list, true, extra)
	if err != nil {
		return nil, bad("messages", "%v", err)
	}
	ids, err := s.tok.TryEncode(text, false)
	if err != nil {
		return nil, bad("messages", "%v", err)
	}
	pixels := int64(0)
	for i, file := range images {
		w, h, err := media.Size(file, media.Options{})
		if err != nil {
			return nil, bad("messages", "image %d: %v", i+1, err)
		}
		if pixels += int64(w) * int64(h); pixels > pixelsMost {
			return nil, bad("messages", "the request's images have more than %d pixels together", int64(pixelsMost))
		}
	}
	a.files, a.pixels = images, pixels
	return ids, nil
}

// turn reads a message, whose keys stay in their order. Keys without a value say nothing; others than those that
// are known are refused. What calls of tools look like, the template's messages say (token.Template), for
// requests as for training.
func turn(raw json.RawMessage, sees bool) (m dataset.Message, images [][]byte, err error) {
	v, err := jinja.FromJSON(raw)
	given, ok := v.(*jinja.Map)
	if err != nil || !ok {
		return m, nil, errors.New("it is no JSON object")
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(raw, &keys) != nil {
		return m, nil, errors.New("it is no JSON object")
	}
	if m.Role, _ = as[string](keys["role"]); !slices.Contains(chatRoles, m.Role) {
		return m, nil, fmt.Errorf("its role is %.40q, and none of %v", m.Role, chatRoles)
	}
	content, images, err := contentOf(keys["content"], sees)
	if err != nil {
		return m, nil, err
	}
	whole, more := jinja.NewMap(), false
	for _, key := range given.Keys() {
		k, _ := key.(string)
		v, _ := given.Get(k)
		if s := string(keys[k]); s == "null" || s == "[]" || s == `""` && k == "refusal" {
			continue
		}
		switch k {
		case "role":
		case "content":
			if v, err = jinja.FromGo(content); err != nil {
				return m, nil, err
			}
		case "tool_calls", "function_call":
			more = true
		case "name", "tool_call_id", "reasoning_content", "reasoning", "thinking":
			if _, ok := v.(string); !ok {
				return m, nil, fmt.Errorf("its %s is no text", k)
			}
			more = true
		default:
			return m, nil, fmt.Errorf("it has the key %.40q, which is not known", k)
		}
		whole.Set(k, v)
	}
	if m.Content, ok = content.(string); ok && !more {
		return m, nil, nil
	}
	m.Raw, err = jinja.ToJSON(whole)
	return m, images, err
}

// chatForm writes answers in conversations. It is of one request.
type chatForm struct {
	s        *Server
	logProbs bool
	asked    *asked
	style    *style          // of calls of tools, nil where answers are texts
	callers  map[int]*caller // of answers that are streamed
}

func (*chatForm) object() (whole, part string) { return "chat.completion", "chat.completion.chunk" }

func (*chatForm) prefix() string { return "chatcmpl" }

func (f *chatForm) choice(i int, c *choice) map[string]any {
	x := map[string]any{"logprobs": f.probs(c)}
	m := map[string]any{"role": "assistant", "content": c.text, "refusal": nil}
	x["message"] = m
	if f.style == nil {
		return x
	}
	if text, calls := f.style.parse(c.text); len(calls) > 0 {
		if m["content"] = text; text == "" {
			m["content"] = nil
		}
		m["tool_calls"] = f.style.written(f.asked.identity, i, calls, false)
		if c.end == sample.EndStop {
			x["finish_reason"] = "tool_calls"
		}
	}
	return x
}

func (f *chatForm) delta(i int, c *choice, first bool, finish any) map[string]any {
	d := map[string]any{}
	x := map[string]any{"delta": d, "logprobs": f.probs(c)}
	text := c.text
	if f.style != nil {
		if first {
			if f.callers == nil {
				f.callers = map[int]*caller{}
			}
			f.callers[i] = &caller{style: f.style}
		}
		k := f.callers[i]
		if text = k.push(c.text); finish != nil {
			rest, calls := k.end()
			text += rest
			if len(calls) > 0 {
				d["tool_calls"] = f.style.written(f.asked.identity, i, calls, true)
				if c.end == sample.EndStop {
					x["finish_reason"] = "tool_calls"
				}
			}
		}
	}
	if first {
		d["role"] = "assistant"
	}
	if first || text != "" {
		d["content"] = text
	}
	return x
}

// probs are the log-probabilities of an answer's tokens, nil where nobody asked for them.
func (f *chatForm) probs(c *choice) any {
	if !f.logProbs {
		return nil
	}
	list := []any{}
	one := func(id int32, p float32) map[string]any {
		text, b := f.s.spell.said(id)
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
