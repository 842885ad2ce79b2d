package serve

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/sample/grammar"
)

// style is how models of a kind write calls of tools.
type style struct {
	name string
	told []string // parts of the chat template that all together tell models of the kind
	// calls has what stands around calls, their names and their arguments
	calls grammar.Calls
	key   string         // of the arguments, where a call is an object in JSON with its name
	one   bool           // an answer has one call at most
	short bool           // identities of calls have nine letters or digits
	marks []string       // tokens that are special and are written all the same
	tags  *tags          // of calls that are no JSON, nil where they are
	lines *[2]string     // between which calls are Python's, nil where they are none
	tools []grammar.Tool // of a request
}

// inObject has calls that are {name, arguments} in JSON, within marks.
func inObject(from, between, to, key string) grammar.Calls {
	return grammar.Calls{From: from, Name: `{"name": `, Arguments: `, "` + key + `": `, End: "}", Between: between, To: to}
}

// The marks of Granite's, Mistral's and DeepSeek's models.
const graniteMark = "<|tool_call|>"

var (
	lfmMarks      = [2]string{"<|tool_call_start|>", "<|tool_call_end|>"}
	mistralMarks  = []string{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}
	deepseekMarks = []string{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>",
		"<｜tool▁sep｜>"}
)

// deepseek has calls with what stands before a name, around the arguments, and before the next call.
func deepseek(kind, arguments, end, next string) grammar.Calls {
	m := deepseekMarks
	return grammar.Calls{Bare: true, From: m[0] + m[2] + kind, Arguments: arguments, End: end + m[3],
		Between: next + m[2] + kind, To: m[1]}
}

// styles are those that are known, the most certain first.
var styles = []style{
	{name: "GLM 4.5", told: []string{"<arg_key>"}, tags: glmTags, marks: glmMarks},
	{name: "Qwen3-Coder", told: []string{"<function="}, tags: coderTags},
	{name: "MiniMax M2", told: []string{"<minimax:tool_call>"}, tags: minimaxTags},
	{name: "Kimi K2", told: []string{kimiMarks[3]}, tags: kimiTags, marks: kimiMarks},
	{name: "gpt-oss", told: harmonyMarks[:3], tags: harmonyTags, marks: harmonyMarks},
	{name: "Granite 3", told: []string{graniteMark}, marks: []string{graniteMark},
		calls: inObject(graniteMark+"[", ", ", "]", "arguments"), key: "arguments"},
	{name: "Hermes, Qwen, SmolLM3", told: []string{"<tool_call>"},
		calls: inObject("<tool_call>\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>", "arguments"),
		key:   "arguments"},
	{name: "Mistral from v11 on", told: []string{"[TOOL_CALLS]", "[ARGS]"}, short: true, marks: mistralMarks,
		calls: grammar.Calls{Bare: true, From: "[TOOL_CALLS]", Arguments: "[ARGS]", Between: "[TOOL_CALLS]"}},
	{name: "Mistral", told: []string{"[TOOL_CALLS] ["}, short: true, marks: mistralMarks,
		calls: inObject("[TOOL_CALLS] [", ", ", "]", "arguments"), key: "arguments"},
	{name: "Mistral", told: []string{"[TOOL_CALLS]"}, short: true, marks: mistralMarks,
		calls: inObject("[TOOL_CALLS][", ", ", "]", "arguments"), key: "arguments"},
	{name: "DeepSeek V3, R1", told: []string{"<｜tool▁sep｜>", "```json"}, marks: deepseekMarks,
		calls: deepseek("function<｜tool▁sep｜>", "\n```json\n", "\n```", "\n")},
	{name: "DeepSeek V3.1", told: []string{"<｜tool▁sep｜>"}, marks: deepseekMarks, calls: deepseek("",
		"<｜tool▁sep｜>", "", "")},
	{name: "LFM2", told: []string{lfmMarks[0]}, marks: lfmMarks[:], lines: &lfmMarks},
	{name: "OLMo 3", told: []string{"<function_calls>"}, lines: &[2]string{"<function_calls>", "</function_calls>"}},
	{name: "Llama 4, in Python", told: []string{"func_name1("}, lines: &[2]string{}},
	{name: "Llama 3.1", told: []string{`"parameters": `}, calls: inObject("", "", "", "parameters"), key: "parameters", one: true},
}

// bare is a call alone, without any mark, of a model whose template tells of none.
var bare = style{name: "a call alone", calls: inObject("", "", "", "arguments"), key: "arguments", one: true}

// styleOf is how the model of a chat template writes calls.
func styleOf(template string) (*style, error) {
	for i := range styles {
		s := &styles[i]
		known := strings.Contains(template, "tools")
		for _, part := range s.told {
			known = known && strings.Contains(template, part)
		}
		if known {
			return s, nil
		}
	}
	return nil, bad("tools", "the model's chat template says nothing of tools that is known here: calls within "+
		"<tool_call>, <minimax:tool_call>, <|tool_calls_section_begin|> or <｜tool▁calls▁begin｜>, behind [TOOL_CALLS], or as {\"name\": , \"parameters\": }")
}

// mark is what calls begin with in a text, "" where an answer begins with the first.
func (s *style) mark() string {
	if s.tags != nil {
		return s.tags.mark
	} else if s.lines != nil {
		return s.lines[0]
	}
	if len(s.marks) > 0 { // one special token, whatever follows
		return s.marks[0]
	}
	first, _, _ := strings.Cut(s.calls.From, " ")
	return strings.TrimSpace(first)
}

// consume takes an affix off the beginning of a text, whatever white space lies within it and around it.
func consume(text, affix string) (rest string, ok bool) {
	rest = text
	for _, part := range strings.Fields(affix) {
		for _, piece := range pieces(part) {
			if rest, ok = strings.CutPrefix(strings.TrimLeftFunc(rest, unicode.IsSpace), piece); !ok {
				return text, false
			}
		}
	}
	return rest, true
}

// pieces cuts a part of an affix behind marks, between which models may write white space.
func pieces(part string) []string {
	for _, m := range append(slices.Concat(deepseekMarks, mistralMarks), graniteMark) {
		if rest, ok := strings.CutPrefix(part, m); ok && rest != "" {
			return append([]string{m}, pieces(rest)...)
		}
	}
	return []string{part}
}

// parse cuts an answer into its text and its calls. What is no call is text.
func (s *style) parse(text string) (content string, calls []call) {
	if s.tags != nil {
		return s.tags.parse(text, s.tools)
	} else if s.lines != nil {
		before, rest, _ := strings.Cut(text, s.lines[0])
		body, behind := rest, ""
		if s.lines[1] != "" {
			body, behind, _ = strings.Cut(rest, s.lines[1])
		}
		if calls, ok := pythonic(body); ok {
			return strings.TrimSpace(before) + behind, calls
		}
		return text, nil
	}
	at := strings.Index(text, s.mark())
	if at < 0 {
		return text, nil
	}
	rest, ok := consume(text[at:], s.calls.From)
	for ok {
		var c call
		if c, rest, ok = s.next(rest); !ok {
			return text, nil
		}
		calls = append(calls, c)
		if blank(rest) || s.one {
			break
		}
		var more string
		if more, ok = consume(rest, s.calls.Between); !ok || blank(s.calls.Between) || blank(more) {
			break
		}
		rest = more
	}
	if !blank(rest) {
		rest, _ = consume(rest, s.calls.To)
	}
	if len(calls) == 0 || !blank(rest) {
		return text, nil
	}
	return strings.TrimSpace(text[:at]), calls
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// next reads a call at the beginning of a text.
func (s *style) next(text string) (c call, rest string, ok bool) {
	if s.key != "" {
		var x map[string]json.RawMessage
		if rest, ok = value(text, &x); !ok {
			return c, text, false
		}
		if c.name, ok = as[string](x["name"]); !ok || c.name == "" {
			return c, text, false
		}
		c.arguments = "{}"
		if raw := x[s.key]; raw != nil {
			c.arguments = string(raw)
		}
		return c, rest, c.arguments[0] == '{'
	}
	name, rest, found := strings.Cut(text, s.calls.Arguments)
	c.name, _, _ = strings.Cut(strings.TrimSpace(name), "[CALL_ID]")
	if !found || c.name == "" || strings.ContainsFunc(c.name, unicode.IsSpace) {
		return c, text, false
	}
	var arguments json.RawMessage
	rest, ok = value(rest, &arguments)
	if c.arguments = string(arguments); !ok || c.arguments[0] != '{' {
		return c, text, false
	}
	if blank(rest) {
		return c, "", true
	}
	rest, ok = consume(rest, s.calls.End)
	return c, rest, ok
}

// value reads a value in JSON at the beginning of a text.
func value(text string, v any) (rest string, ok bool) {
	d := json.NewDecoder(strings.NewReader(text))
	if d.Decode(v) != nil {
		return text, false
	}
	return text[d.InputOffset():], true
}

// shown are the tokens of marks, which are special and have a text all the same.
func shown(tok *token.Tokenizer, marks []string) map[int32]string {
	out := map[int32]string{}
	for _, m := range marks {
		if id, ok := tok.TokenID(m); ok {
			out[id] = m
		}
	}
	return out
}

// marked is the vocabulary in which a style's marks are spelled.
func (s *Server) marked(of *style) *grammar.Vocabulary {
	g := &s.guides
	if len(of.marks) == 0 {
		return g.vocab
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.marked == nil { // a model has one style
		first, other := s.tok.Pieces()
		for id, m := range shown(s.tok, of.marks) { // in no order: each by itself
			first[id], other[id] = []byte(m), []byte(m)
		}
		g.marked = grammar.NewVocabulary(first, other)
	}
	return g.marked
}
