package serve

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/stages/sample/grammar"
)

// toolBody is a function that a request offers.
// In the words of the field: tool calling.
type toolBody struct {
	Type     string `json:"type"`
	Function *struct {
		Name        string          `json:"name"`
		Description json.RawMessage `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      *bool           `json:"strict"`
	} `json:"function"`
}

// tools is what a request says of tools.
type tools struct {
	style *style
	list  any // as templates read them
	calls *grammar.Calls
	must  bool // some tool is to be called
	held  bool // arguments are held to the tools' schemas
}

// toolsMost bounds the tools of a request.
const toolsMost = 128

// offered reads tools and tool_choice; nil if no tool may be called.
func (s *Server) offered(b *chatBody) (*tools, error) {
	if s.noChat != nil {
		return nil, bad("messages", "the model has no chats: %v", s.noChat)
	}
	choice := struct {
		Type     string `json:"type"`
		Function *struct {
			Name string `json:"name"`
		} `json:"function"`
	}{Type: "auto"}
	if len(b.Choice) > 0 && string(b.Choice) != "null" {
		if text, ok := as[string](b.Choice); ok {
			choice.Type = text
		} else if json.Unmarshal(b.Choice, &choice) != nil || choice.Type != "function" || choice.Function == nil {
			return nil, bad("tool_choice", "tool_choice is none of none, auto, required and {type: function, "+
				"function: {name: }}")
		}
	}
	if len(b.Tools) == 0 {
		if choice.Type == "auto" || choice.Type == "none" {
			return nil, nil
		}
		return nil, bad("tool_choice", "tool_choice wants tools, and there are none")
	}
	if len(b.Tools) > toolsMost {
		return nil, bad("tools", "there are %d tools, more than %d", len(b.Tools), toolsMost)
	}
	t := &tools{}
	var err error
	if t.style, err = styleOf(s.template.ToolSource()); err != nil {
		if choice.Type == "auto" {
			return nil, err
		}
		t.style = &bare // a call that must come needs no template: its form is held, as vLLM holds it
	}
	if err := t.read(b.Tools); err != nil {
		return nil, err
	}
	t.calls.Most = -1
	if t.style.one || !or(b.Parallel, true) {
		t.calls.Most = 1
	}
	switch choice.Type {
	case "auto":
		t.calls.Free = true
		return t, nil
	case "none":
		t.style = nil // the template shows them, and answers are texts
		return t, nil
	case "required":
	case "function":
		keep := slices.DeleteFunc(t.calls.Tools, func(x grammar.Tool) bool { return x.Name != choice.Function.Name })
		if t.calls.Tools = keep; len(keep) == 0 {
			return nil, bad("tool_choice", "there is no tool %q", choice.Function.Name)
		}
		t.calls.Most = 1
	default:
		return nil, bad("tool_choice", "tool_choice is %.40q, and none of none, auto, required and a function",
			choice.Type)
	}
	t.calls.Least, t.must, t.held = 1, true, true
	return t, nil
}

// read takes the functions in.
func (t *tools) read(list []json.RawMessage) error {
	calls := t.style.calls
	t.calls = &calls
	var shown []any
	for i, raw := range list {
		var f toolBody
		if err := strictly(raw, &f, nil); err != nil || f.Type != "function" || f.Function == nil || f.Function.Name == "" {
			return bad("tools", "tool %d is no {type: function, function: {name: , description: , parameters: }}", i)
		}
		parameters := f.Function.Parameters
		if string(parameters) == "null" || len(parameters) == 0 {
			parameters = nil
		}
		if slices.ContainsFunc(t.calls.Tools, func(x grammar.Tool) bool { return x.Name == f.Function.Name }) {
			return bad("tools", "the tool %q is there twice", f.Function.Name)
		}
		t.calls.Tools = append(t.calls.Tools, grammar.Tool{Name: f.Function.Name, Parameters: parameters})
		t.held = t.held || or(f.Function.Strict, false)
		shown = append(shown, raw)
	}
	t.list = shown
	return nil
}

// toolGuide holds answers to calls, where the request wants that.
func (s *Server) toolGuide(a *asked, t *tools) error {
	if t.style == nil || !t.held {
		return nil
	}
	if t.style.tags != nil || t.style.lines != nil {
		return bad("tool_choice", "calls as %s writes them are read, and not held to a form: leave tool_choice auto and strict out", t.style.name)
	}
	if t.style.mark() == "" && t.calls.Free {
		return bad("tools", "the model writes calls without marks: strict wants tool_choice required, or a function")
	}
	t.calls.Mark = t.style.mark() // what parse looks for
	key, err := json.Marshal(t.calls)
	if err != nil {
		return bad("tools", "tools: %v", err)
	}
	m, err := s.machine(asks{"tools", "calls", string(key)},
		func(string) (*grammar.Grammar, error) { return t.calls.Grammar() })
	if err == nil {
		a.guide = &guide{v: s.marked(t.style), m: m, first: true}
	}
	return err
}

// call is a call of a tool that an answer has.
type call struct{ name, arguments string }

// written are calls as answers have them.
func (s *style) written(id string, index int, calls []call, streamed bool) (out []any) {
	for k, c := range calls {
		name := fmt.Sprintf("call-%s-%d-%d", strings.TrimPrefix(id, "chatcmpl-"), index, k)
		if s.short {
			name = fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:9]
		}
		x := map[string]any{"id": name, "type": "function",
			"function": map[string]any{"name": c.name, "arguments": c.arguments}}
		if streamed {
			x["index"] = k
		}
		out = append(out, x)
	}
	return out
}

// caller is an answer under way that may call tools: text is passed on until it may be the beginning of a
// call, which is kept until it is whole.
type caller struct {
	style *style
	text  string // all
	said  int    // bytes of it that were passed on
}

// push adds text and gives what is certain to be none of a call.
func (c *caller) push(text string) string {
	c.text += text
	open := c.style.mark()
	end := len(c.text)
	if open == "" {
		if trimmed := strings.TrimSpace(c.text); trimmed == "" || trimmed[0] == '{' || trimmed[0] == '[' && c.style.lines != nil {
			return ""
		}
	} else if at := strings.Index(c.text, open); at >= 0 {
		end = at
	} else {
		for n := min(len(open)-1, len(c.text)); n > 0; n-- {
			if strings.HasSuffix(c.text, open[:n]) {
				end = len(c.text) - n
				break
			}
		}
	}
	end = max(c.said, len(strings.TrimRight(c.text[:end],
		" \n"))) // spaces before a call are none of the answer's
	out := c.text[c.said:end]
	c.said = end
	return out
}

// end gives what is left at the answer's end: text, or calls.
func (c *caller) end() (string, []call) {
	content, calls := c.style.parse(c.text)
	if len(calls) == 0 {
		return c.text[c.said:], nil
	}
	return content[min(c.said, len(content)):], calls
}
