package token

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/token/jinja"
)

// Message is one turn of a conversation.
type Message = dataset.Message

// Template is a model's chat template with the special tokens it may name. It is safe for concurrent use.
type Template struct {
	tmpl    *jinja.Template
	source  string
	special map[string]string
	// Now is the date that strftime_now gives the template. Its zero value stands for 26 July 2024, the date
	// that Llama 3.1's template falls back to, so that training text does not depend on the day it is made.
	Now time.Time
}

var defaultNow = time.Date(2024, 7, 26, 0, 0, 0, 0, time.UTC)

// NewTemplate parses a chat template. The special tokens of c, which may be nil, are its variables
// bos_token, eos_token, pad_token and unk_token. Errors name the line of the template.
func NewTemplate(src string, c *Config) (*Template, error) {
	if src == "" {
		return nil, errors.New("the model has no chat template; give one (chat_template.jinja), or " +
			"train on text")
	}
	parsed, err := jinja.Parse(src)
	if err != nil {
		return nil, err
	}
	t := &Template{tmpl: parsed, source: src, special: map[string]string{}}
	if c != nil {
		for name, s := range map[string]string{"bos_token": c.BOS, "eos_token": c.EOS, "pad_token": c.PAD,
			"unk_token": c.UNK} {
			if s != "" {
				t.special[name] = s
			}
		}
	}
	return t, nil
}

// Source is the template's text.
func (t *Template) Source() string { return t.source }

// Render returns the text of a conversation, as `apply_chat_template(tokenize=False)` of the Python library
// does. tools is nil or what the template expects, usually a list of functions; extra holds further
// variables.
func (t *Template) Render(messages []Message, tools any, addGenerationPrompt bool,
	extra map[string]any) (string, error) {
	r, err := t.prepare(tools, extra)
	if err != nil {
		return "", err
	}
	out, err := r.render(messages, addGenerationPrompt)
	return out.Text, err
}

// rendering is a template with everything but the messages.
type rendering struct {
	t    *Template
	vars map[string]any
}

// prepare sets the variables that stay the same over the renderings of one conversation.
func (t *Template) prepare(tools any, extra map[string]any) (*rendering, error) {
	r := &rendering{t, map[string]any{"documents": nil}}
	for k, v := range t.special {
		r.vars[k] = v
	}
	var err error
	if r.vars["tools"], err = jinja.FromGo(tools); err != nil {
		return nil, fmt.Errorf("chat template: tools: %w", err)
	}
	for k, v := range extra {
		if r.vars[k], err = jinja.FromGo(v); err != nil {
			return nil, fmt.Errorf("chat template: variable %s: %w", k, err)
		}
	}
	return r, nil
}

// render renders the messages. The date is fixed unless it is set, because training data must not
// depend on the day.
func (r *rendering) render(messages []Message, addGenerationPrompt bool) (jinja.Output, error) {
	list := make([]any, len(messages))
	for i, m := range messages {
		v, err := messageValue(m)
		if err != nil {
			return jinja.Output{}, fmt.Errorf("chat template: message %d: %w", i, err)
		}
		list[i] = v
	}
	vars := jinja.NewMap()
	for k, v := range r.vars {
		vars.Set(k, v)
	}
	vars.Set("messages", jinja.NewList(list))
	vars.Set("add_generation_prompt", addGenerationPrompt)
	now := r.t.Now
	if now.IsZero() {
		now = defaultNow
	}
	return r.t.tmpl.Render(vars, jinja.Options{Now: now})
}

// messageValue is a message as the template sees it: its own JSON object where there is one, else
// role and content.
func messageValue(m Message) (any, error) {
	if m.Raw != nil {
		v, err := jinja.FromJSON(m.Raw)
		if _, ok := v.(*jinja.Map); err == nil && !ok {
			return nil, errors.New("it is not a JSON object")
		}
		return v, err
	}
	out := jinja.NewMap()
	out.Set("role", strings.ToValidUTF8(m.Role, "\uFFFD"))
	out.Set("content", strings.ToValidUTF8(m.Content, "\uFFFD"))
	return out, nil
}

// ChatOptions says what to make of a conversation.
type ChatOptions struct {
	Tools         any            // functions offered to the model, or nil
	Extra         map[string]any // further variables of the template
	LastTurnOnly  bool           // loss on the last assistant turn only
	TrainOnPrompt bool           // loss on every token
}

// Chat encodes conversations with one template and set of options: the ChatEncoder of package dataset.
type Chat struct {
	tok      *Tokenizer
	template *Template
	options  ChatOptions
	print    string
}

// NewChat returns an encoder of conversations. The tools of a conversation come in place of those of o.
func NewChat(tok *Tokenizer, template *Template, o ChatOptions) *Chat {
	id := fmt.Sprintf("%s\x00%s\x00%v\x00%v\x00%v", tok.Fingerprint(), template.source, template.special,
		template.Now, o)
	sum := sha256.Sum256([]byte(id))
	return &Chat{tok, template, o, hex.EncodeToString(sum[:16])}
}

// EncodeMessages is EncodeChat with the functions that a conversation's file offers, a JSON array or nil.
func (c *Chat) EncodeMessages(messages []Message, tools []byte) (ids []int32, lossMask []bool, err error) {
	defer notSlow(&err)
	o := c.options
	if tools != nil {
		o.Tools = json.RawMessage(tools)
	}
	return EncodeChat(c.tok, c.template, messages, o)
}

// EncodeEdited implements dataset.EditingEncoder.
func (c *Chat) EncodeEdited(messages []Message, tools []byte,
	edit func(text string) ([]dataset.Edit, error)) (ids []int32, lossMask []bool, err error) {
	defer notSlow(&err)
	o := c.options
	if tools != nil {
		o.Tools = json.RawMessage(tools)
	}
	return encodeChat(c.tok, c.template, messages, o, edit)
}

// edited carries out edits, and moves the ranges with the text around them; what is put in belongs to none.
func edited(text string, spans [][2]int, edits []dataset.Edit) (string, [][2]int) {
	var out strings.Builder
	var moved [][2]int
	at := 0
	keep := func(to int) { // text[at:to] stays
		by := out.Len() - at
		for _, s := range spans {
			if from, to := max(s[0], at), min(s[1], to); from < to {
				moved = append(moved, [2]int{from + by, to + by})
			}
		}
		out.WriteString(text[at:to])
	}
	for _, e := range edits {
		keep(e.From)
		out.WriteString(e.Text)
		at = e.To
	}
	keep(len(text))
	return out.String(), moved
}

// Fingerprint identifies the tokenizer, the template and the options.
func (c *Chat) Fingerprint() string { return c.print }

// EncodeChat returns the ids of a conversation and which of them the model is to learn: those of assistant
// turns, through their end mark. A template with {% generation %} blocks says itself which text that is. For
// any other, a turn begins where the text of the messages before it, with a generation prompt, ends; and it
// ends where the text up to it ends. A template for which these are no prefixes of the whole text is an
// error that names the message.
func EncodeChat(tok *Tokenizer, tmpl *Template, messages []Message,
	o ChatOptions) (ids []int32, lossMask []bool, err error) {
	return encodeChat(tok, tmpl, messages, o, nil)
}

// encodeChat renders and encodes a conversation, with a mask of the tokens to learn. These are what
// the template marks, or else the text of the assistant's messages.
func encodeChat(tok *Tokenizer, tmpl *Template, messages []Message, o ChatOptions,
	edit func(text string) ([]dataset.Edit, error)) (ids []int32, lossMask []bool, err error) {
	r, err := tmpl.prepare(o.Tools, o.Extra)
	if err != nil {
		return nil, nil, err
	}
	whole, err := r.render(messages, false)
	if err != nil {
		return nil, nil, err
	}
	spans := whole.Generations
	switch {
	case o.TrainOnPrompt:
		spans = [][2]int{{0, len(whole.Text)}}
	case !whole.HasBlocks:
		if spans, err = r.assistantSpans(messages, whole.Text); err != nil {
			return nil, nil, err
		}
	}
	if o.LastTurnOnly && len(spans) > 1 {
		spans = spans[len(spans)-1:]
	}
	if edit != nil {
		edits, err := edit(whole.Text)
		if err != nil {
			return nil, nil, err
		}
		whole.Text, spans = edited(whole.Text, spans, edits)
	}
	ids, lossMask = tok.encodeSpans(whole.Text, spans)
	return ids, lossMask, nil
}

// assistantSpans finds the byte ranges of the assistant's turns in the whole text.
func (r *rendering) assistantSpans(messages []Message, whole string) ([][2]int, error) {
	var out [][2]int
	for i, m := range messages {
		if m.Role != "assistant" {
			continue
		}
		before, err := r.render(messages[:i], true)
		if err != nil {
			return nil, fmt.Errorf("messages before number %d: %w", i, err)
		}
		if !strings.HasPrefix(whole, before.Text) {
			return nil, r.unstable(i,
				"the text before it, with a generation prompt, does not begin the whole text")
		}
		end, err := r.turnEnd(messages, i, whole)
		if err != nil {
			return nil, err
		}
		if end < len(before.Text) {
			return nil, r.unstable(i, "it ends before it begins")
		}
		out = append(out, [2]int{len(before.Text), end})
	}
	return out, nil
}

// unstable is the error for templates whose text of a message cannot be told from the rest.
func (r *rendering) unstable(i int, why string) error {
	return fmt.Errorf("chat template: cannot tell which text message %d (assistant) wrote: %s; "+
		"mark it in the template with {%% generation %%} … {%% endgeneration %%}", i, why)
}

// turnEnd returns where message i ends in the whole text. Where templates write a turn in another way once
// others follow (Qwen 3 drops its reasoning), the end is found behind the turn's content: what follows the
// content is the same in both.
func (r *rendering) turnEnd(messages []Message, i int, whole string) (int, error) {
	upTo, err := r.render(messages[:i+1], false)
	if err != nil {
		return 0, fmt.Errorf("messages up to number %d: %w", i, err)
	}
	if strings.HasPrefix(whole, upTo.Text) {
		return len(upTo.Text), nil
	}
	other := append(messages[:i:i], withContent(messages[i], "\uE000"))
	upToOther, err := r.render(other, false)
	if err != nil {
		return 0, fmt.Errorf("messages up to number %d: %w", i, err)
	}
	wholeOther, err := r.render(append(other, messages[i+1:]...), false)
	if err != nil {
		return 0, err
	}
	tail := upTo.Text[len(upTo.Text)-commonSuffix(upTo.Text, upToOther.Text):]
	at := len(whole) - commonSuffix(whole, wholeOther.Text)
	if tail == "" || !strings.HasPrefix(whole[at:], tail) {
		return 0, r.unstable(i, "it is written in another way when messages follow")
	}
	return at + len(tail), nil
}

// withContent returns m with other content.
func withContent(m Message, content string) Message {
	out := Message{Role: m.Role, Content: content}
	if m.Raw == nil {
		return out
	}
	v, err := jinja.FromJSON(m.Raw)
	if object, ok := v.(*jinja.Map); err == nil && ok {
		object.Set("content", content)
		if raw, err := jinja.ToJSON(object); err == nil {
			out.Raw = raw
		}
	}
	return out
}

// commonSuffix is the number of bytes in which the ends of a and b agree.
func commonSuffix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}
