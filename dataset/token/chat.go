package token

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/token/jinja"
)

// Message is one turn of a conversation.
type Message = dataset.Message

// Template is a model's chat template with the special tokens it may name. It is safe for concurrent use.
// In the words of the field: generation marker.
type Template struct {
	tmpl    *jinja.Template
	source  string
	special map[string]string
	// Now is the date that strftime_now gives the template. Its zero value stands for 26 July 2024, the date
	// that Llama 3.1's template falls back to, so that training text does not depend on the day it is made.
	Now time.Time

	tools     *Template // for conversations with tools, if the model has one for these
	developer bool      // the template knows the role developer
}

var defaultNow = time.Date(2024, 7, 26, 0, 0, 0, 0, time.UTC)

// NewTemplate parses a chat template. The special tokens of c, which may be nil, are its variables
// bos_token, eos_token, pad_token and unk_token. Errors name the line of the template.
func NewTemplate(src string, c *Config) (*Template, error) {
	if src == "" && c != nil && len(c.ChatTemplates) > 0 {
		return nil, fmt.Errorf("the model has the chat templates %s, and none is the default; data.template "+
			"names one", strings.Join(slices.Sorted(maps.Keys(c.ChatTemplates)), ", "))
	}
	if src == "" {
		return nil, errors.New("the model has no chat template; give one (chat_template.jinja), or train on text")
	}
	parsed, err := jinja.Parse(src)
	if err != nil {
		return nil, err
	}
	t := &Template{tmpl: parsed, source: src, special: map[string]string{},
		developer: strings.Contains(src, "developer")}
	if c != nil {
		for _, g := range c.named {
			t.special[g.key] = g.token.Content
		}
		for name, s := range map[string]string{"bos_token": c.BOS, "eos_token": c.EOS, "pad_token": c.PAD,
			"unk_token": c.UNK} {
			if s != "" {
				t.special[name] = s
			}
		}
		if tools := c.ChatTemplates["tool_use"]; tools != "" && src == c.ChatTemplate && src != tools {
			t.tools, err = NewTemplate(tools, c)
		}
	}
	return t, err
}

// Source is the template's text.
func (t *Template) Source() string { return t.source }

// ToolSource is the text of the template for conversations with tools: the one named tool_use, if there is one.
func (t *Template) ToolSource() string {
	if t.tools != nil {
		return t.tools.source
	}
	return t.source
}

// Dated tells whether the template can write the date.
func (t *Template) Dated() bool { return strings.Contains(t.source+t.ToolSource(), "strftime_now") }

// Render returns the text of a conversation, as `apply_chat_template(tokenize=False)` of the Python library
// does. tools is nil or what the template expects, usually a list of functions; extra holds further
// variables. A message of which the template writes nothing is an error.
func (t *Template) Render(messages []Message, tools any, addGenerationPrompt bool,
	extra map[string]any) (string, error) {
	_, out, err := t.prepare(messages, tools, extra, addGenerationPrompt)
	return out.Text, err
}

// Prompt is the text of a conversation that asks for an answer; tools is a JSON array or nil, and vars a JSON
// object of further variables, or nil.
func (t *Template) Prompt(messages []Message, tools, vars json.RawMessage) (string, error) {
	extra, err := withVars(nil, vars)
	if err != nil {
		return "", err
	}
	if tools == nil {
		return t.Render(messages, nil, true, extra)
	}
	return t.Render(messages, tools, true, extra)
}

// withVars adds the members of a JSON object to variables.
func withVars(extra map[string]any, vars []byte) (map[string]any, error) {
	if vars == nil {
		return extra, nil
	}
	var more map[string]json.RawMessage
	if err := json.Unmarshal(vars, &more); err != nil {
		return nil, fmt.Errorf("chat template: variables: %w", err)
	}
	out := maps.Clone(extra)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range more {
		out[k] = v
	}
	return out, nil
}

// rendering is a conversation with its template and everything else that is rendered.
type rendering struct {
	t     *Template
	vars  map[string]any
	list  []any  // the messages as the template sees them
	muted []bool // of them, which are not learnt
	// of them, which give arguments of calls as text, in the form in which templates read an object
	callTexts []bool
	asks      bool // the text ends in the prompt for an answer
}

// prepare sets the variables of a conversation, finds the form of its messages in which the template writes
// all that they say, and renders it. Where there is no such form, the error is that of the usual one.
func (t *Template) prepare(messages []Message, tools any, extra map[string]any,
	prompt bool) (r *rendering, out jinja.Output, err error) {
	if t.tools != nil && tools != nil {
		other := *t.tools
		other.Now, t = t.Now, &other
	}
	r = &rendering{t: t, vars: map[string]any{"documents": nil}, muted: make([]bool, len(messages))}
	for k, v := range t.special {
		r.vars[k] = v
	}
	if r.vars["tools"], err = jinja.FromGo(tools); err != nil {
		return nil, out, fmt.Errorf("chat template: tools: %w", err)
	}
	for k, v := range extra {
		if r.vars[k], err = jinja.FromGo(v); err != nil {
			return nil, out, fmt.Errorf("chat template: variable %s: %w", k, err)
		}
	}
	for i, m := range messages {
		r.muted[i] = m.Unlearnt && m.Role == "assistant"
	}
	var first error
	for _, f := range formsOf(messages) {
		out, err := r.try(messages, f, prompt)
		if err == nil {
			return r, out, nil
		}
		if first == nil || errors.Is(err, errVanished) && !errors.Is(first, errVanished) {
			first = err
		}
	}
	return nil, out, first
}

// try renders the messages in a form, which they keep.
func (r *rendering) try(messages []Message, f form, prompt bool) (out jinja.Output, err error) {
	r.list, r.callTexts, r.asks = make([]any, len(messages)), make([]bool, len(messages)), prompt
	for i, m := range messages {
		r.callTexts[i] = !f.callText && callText.Match(m.Raw)
		v, err := messageValue(m, i, f)
		if err != nil {
			return out, fmt.Errorf("chat template: message %d: %w", i, err)
		}
		if role, _ := v.Get("role"); role == "developer" && (f.system || !r.t.developer) {
			v.Set("role", "system")
		}
		r.list[i] = v
	}
	if out, err = r.render(r.list, prompt); err == nil {
		err = r.complete(out.Text)
	}
	return out, err
}

// role is that of message i.
func (r *rendering) role(i int) string {
	role, _ := get[string](r.list[i].(*jinja.Map), "role")
	return role
}

// render renders messages. The date is fixed unless it is set, because training data must not depend on the day.
func (r *rendering) render(messages []any, addGenerationPrompt bool) (jinja.Output, error) {
	vars := jinja.NewMap()
	for k, v := range r.vars {
		vars.Set(k, v)
	}
	vars.Set("messages", jinja.NewList(messages))
	vars.Set("add_generation_prompt", addGenerationPrompt)
	now := r.t.Now
	if now.IsZero() {
		now = defaultNow
	}
	return r.t.tmpl.Render(vars, jinja.Options{Now: now})
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

	stopped, unstopped atomic.Int64 // conversations that teach a token that stops an answer, or none
}

// NewChat returns an encoder of conversations. The tools of a conversation come in place of those of o.
func NewChat(tok *Tokenizer, template *Template, o ChatOptions) *Chat {
	sources := template.source
	if template.tools != nil {
		sources += template.tools.source
	}
	id := fmt.Sprintf("%s\x00%s\x00%v\x00%v\x00%v", tok.Fingerprint(), sources, template.special, template.Now, o)
	sum := sha256.Sum256([]byte(id))
	return &Chat{tok: tok, template: template, options: o, print: hex.EncodeToString(sum[:16])}
}

// EncodeMessages is EncodeChat with the functions that a conversation's file offers, a JSON array or nil, and
// with its further variables, a JSON object or nil.
func (c *Chat) EncodeMessages(messages []Message, tools, vars []byte) (ids []int32, lossMask []bool, err error) {
	return c.EncodeEdited(messages, tools, vars, nil)
}

// encode encodes a conversation and counts it.
func (c *Chat) encode(messages []Message, o ChatOptions,
	edit func(text string) ([]dataset.Edit, error)) ([]int32, []bool, error) {
	ids, mask, stopped, err := encodeChat(c.tok, c.template, messages, o, edit)
	if err == nil && !stopped {
		c.unstopped.Add(1)
	} else if err == nil {
		c.stopped.Add(1)
	}
	return ids, mask, err
}

// EncodeEdited implements dataset.EditingEncoder.
func (c *Chat) EncodeEdited(messages []Message, tools, vars []byte,
	edit func(text string) ([]dataset.Edit, error)) (ids []int32, lossMask []bool, err error) {
	defer notSlow(&err)
	o := c.options
	if tools != nil {
		o.Tools = json.RawMessage(tools)
	}
	if o.Extra, err = withVars(o.Extra, vars); err != nil {
		return nil, nil, err
	}
	return c.encode(messages, o, edit)
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

// encodeChat renders and encodes a conversation: its ids, which of them the model is to learn, those of assistant turns
// through the token that stops them, and whether what is learnt has a token that stops an answer.
// A template with {% generation %} blocks says itself which text that is.
// For any other, a turn begins where the prompt that asks for it ends, and ends behind the token that stops it,
// which may be the one that the next message begins with. Where that shows only in what follows, it is added behind the
// last turn. A template whose text of a turn cannot be told is an error that names the message.
func encodeChat(tok *Tokenizer, tmpl *Template, messages []Message, o ChatOptions,
	edit func(text string) ([]dataset.Edit, error)) (ids []int32, lossMask []bool, stopped bool, err error) {
	r, whole, err := tmpl.prepare(messages, o.Tools, o.Extra, false)
	if err != nil {
		return nil, nil, false, err
	}
	w, err := r.turns(tok, whole, o)
	if err != nil {
		return nil, nil, false, err
	}
	if edit != nil {
		edits, err := edit(w.text)
		if err != nil {
			return nil, nil, false, err
		}
		w.text, w.spans = edited(w.text, w.spans, edits)
	}
	ids, lossMask = tok.encodeSpans(w.text, w.spans)
	return ids, lossMask, w.stopped, nil
}
