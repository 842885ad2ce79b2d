package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/dataset/token/jinja"
	"github.com/lfactor/lfactor/stages/sample"
)

// chat answers POST /v1/chat/completions.
func (s *Server) chat(w http.ResponseWriter, r *http.Request, b *chatBody) error {
	if b.MaxNew != nil {
		if b.Max != nil && *b.Max != *b.MaxNew {
			return bad("max_tokens", "max_tokens and max_completion_tokens say different things")
		}
		b.Max = b.MaxNew
	}
	a, err := s.asking(&b.body, s.context)
	if err != nil {
		return err
	}
	f := &chatForm{s: s, logProbs: or(b.LogProbs, false), asked: a, role: "assistant", tellText: or(b.PromptText, false)}
	if _, ok := w.(speaker); ok {
		a.usage, a.each = true, true
	}
	a.form, a.top = f, or(b.TopLogProbs, 0)
	if a.further < 0 && or(b.Echo, false) && !a.stream {
		a.further = a.top
	}
	switch {
	case a.top < 0 || a.top > topMost:
		return bad("top_logprobs", "top_logprobs is %d, and not from 0 to %d", a.top, topMost)
	case a.top > 0 && !or(b.LogProbs, false):
		return bad("top_logprobs", "top_logprobs wants logprobs")
	}
	t, err := s.offered(b)
	if err != nil {
		return err
	}
	prompt, err := s.conversation(b, t, a, f)
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
		own := *t.style
		own.tools = t.calls.Tools
		f.style = &own
		a.shown = shown(s.tok, own.marks)
	}
	if s.thinks != nil {
		a.shown = shown(s.tok, append(slices.Collect(maps.Values(a.shown)), s.thinks.marks...))
		f.mute = !or(b.Thoughts, true)
	}
	if prompt, err = s.truncate(prompt, a); err != nil {
		return err
	}
	if a.further >= 0 && len(a.files) > 0 {
		return bad("prompt_logprobs", "prompts with images are not scored")
	}
	a.prompts = [][]int32{prompt}
	s.serve(w, r, a)
	return nil
}

// chatRoles are the roles of messages that templates write.
var chatRoles = []string{"system", "developer", "user", "assistant", "tool"}

// conversation writes messages by the chat template, and says what images they have.
func (s *Server) conversation(b *chatBody, t *tools, a *asked, f *chatForm) ([]int32, error) {
	if len(b.Messages) == 0 {
		return nil, bad("messages", "the request has no messages")
	}
	var turns []dataset.Message
	var images [][]byte
	for i, raw := range b.Messages {
		m, seen, err := turn(raw, s.imageProcessor != nil)
		if err != nil {
			return nil, bad("messages", "message %d: %v", i, err)
		}
		if turns, images = append(turns, m), append(images, seen...); len(images) > imagesMost {
			return nil, bad("messages", "the request has more than %d images", imagesMost)
		}
	}
	text, err := s.rendered(b, turns, t, f)
	if err != nil {
		return nil, err
	}
	ids, err := s.tok.TryEncode(text, or(b.AddSpecial, false))
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

// efforts are those of reasoning.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// rendered is a conversation as the template writes it.
func (s *Server) rendered(b *chatBody, turns []dataset.Message, t *tools, f *chatForm) (string, error) {
	extra := map[string]any{}
	if b.Documents != nil {
		extra["documents"] = b.Documents
	}
	if e := or(b.Effort, ""); b.Effort != nil {
		if !slices.Contains(efforts, e) {
			return "", bad("reasoning_effort", "reasoning_effort is %.40q, and none of %v", e, efforts)
		}
		extra["reasoning_effort"], extra["enable_thinking"] = e, e != "none"
	}
	for k, v := range b.Variables {
		extra[k] = v
	}
	var list any
	if t != nil {
		list = t.list
	}
	last, goes := turns[len(turns)-1], or(b.Continue, false)
	if goes && or(b.AddPrompt, false) {
		return "", bad("continue_final_message", "continue_final_message and add_generation_prompt are not both true")
	}
	prompt := or(b.AddPrompt, !goes)
	if !prompt {
		f.role = last.Role
	}
	if or(b.Echo, false) && last.Role == f.role {
		f.echo = last.Content
	}
	today := *s.template
	today.Now = time.Now()
	text, err := today.Render(turns, list, prompt, extra)
	if err != nil {
		return "", bad("messages", "%v", err)
	}
	if goes {
		said := last.Content
		if !strings.Contains(text, said) { // templates trim texts
			said = strings.TrimSpace(said)
		}
		at := strings.LastIndex(text, said)
		if said == "" || at < 0 {
			return "", bad("continue_final_message", "the last message has no text that the template writes as it is")
		}
		text = text[:at+len(said)]
	}
	f.text = text
	return text, nil
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
	role     string          // of answers
	echo     string          // the text of the last message, which answers repeat
	text     string          // of the prompt
	tellText bool            // answers have it
	style    *style          // of calls of tools, nil where answers are texts
	callers  map[int]*caller // of answers that are streamed
	partings map[int]*parting
	mute     bool // thoughts are not told
}

func (*chatForm) object() (whole, part string) { return "chat.completion", "chat.completion.chunk" }

func (*chatForm) prefix() string { return "chatcmpl" }

// head implements form.
func (f *chatForm) head(v map[string]any) {
	for _, c := range v["choices"].([]any) {
		x := c.(map[string]any)
		if p := x["prompt_logprobs"]; p != nil {
			v["prompt_logprobs"] = p
			delete(x, "prompt_logprobs")
		}
	}
	if f.tellText {
		v["prompt_text"] = f.text
	}
}

// parted are the thoughts of a part of an answer, and what it says.
func (f *chatForm) parted(i int, text string, last bool) (thoughts, said string) {
	if f.s.thinks == nil {
		return "", text
	}
	if f.partings == nil {
		f.partings = map[int]*parting{}
	}
	if f.partings[i] == nil {
		f.partings[i] = &parting{of: f.s.thinks, in: f.s.thinks.at(f.text)}
	}
	if thoughts, said = f.partings[i].push(text, last); f.mute {
		thoughts = ""
	}
	return thoughts, said
}

func (f *chatForm) choice(i int, c *choice) map[string]any {
	x := map[string]any{"logprobs": f.probs(c)}
	thoughts, said := f.parted(i, c.text, true)
	m := map[string]any{"role": f.role, "content": f.echo + said, "refusal": nil}
	if x["message"] = m; thoughts != "" {
		if m["reasoning"] = thoughts; f.echo+said == "" {
			m["content"] = nil
		}
	}
	if f.style == nil {
		return x
	}
	if text, calls := f.style.parse(said); len(calls) > 0 {
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
	thoughts, text := f.parted(i, c.text, finish != nil)
	if thoughts != "" {
		d["reasoning"] = thoughts
	}
	if f.style != nil {
		if first {
			if f.callers == nil {
				f.callers = map[int]*caller{}
			}
			f.callers[i] = &caller{style: f.style}
		}
		k := f.callers[i]
		if text = k.push(text); finish != nil {
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
		d["role"], text = f.role, f.echo+text
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
		text, b := f.s.spell.called(id, f.asked.b)
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
