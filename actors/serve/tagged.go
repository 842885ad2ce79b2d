package serve

import (
	"encoding/json"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/stages/sample/grammar"
)

// tags are calls that are written between marks, and are no JSON.
type tags struct {
	mark     string         // that calls begin with
	call     *regexp.Regexp // a call: its name, and what it has
	argument *regexp.Regexp // of what it has: a name and a value; nil where all of it is an object in JSON
	trim     bool           // a new line before a value and behind it is none of it
	around   string         // calls together, beside mark
}

// The marks of Kimi's models, and of GLM's.
var (
	kimiMarks = []string{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
		"<|tool_call_argument_begin|>", "<|tool_call_end|>"}
	glmMarks = []string{"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}
)

var (
	glmTags = &tags{mark: "<tool_call>", call: regexp.MustCompile(`(?s)<tool_call>\s*([^\s<]+)\s*(.*?)</tool_call>`),
		argument: regexp.MustCompile(`(?s)<arg_key>\s*(.*?)\s*</arg_key>\s*<arg_value>(.*?)</arg_value>`)}
	coderTags = &tags{mark: "<tool_call>", trim: true,
		call:     regexp.MustCompile(`(?s)<tool_call>\s*<function=([^>\s]+)\s*>(.*?)</function>\s*</tool_call>`),
		argument: regexp.MustCompile(`(?s)<\s*parameter\s*=\s*([^>]*)>(.*?)<\s*/\s*parameter\s*>`)}
	minimaxTags = &tags{mark: "<minimax:tool_call>", around: "</minimax:tool_call>",
		call:     regexp.MustCompile(`(?s)<invoke name=["']?([^"'>\s]+)["']?\s*>(.*?)</invoke>`),
		argument: regexp.MustCompile(`(?s)<\s*parameter\s+name\s*=\s*["']?([^"'>]*)["']?\s*>(.*?)<\s*/\s*parameter\s*>`)}
	kimiTags = &tags{mark: kimiMarks[0], around: kimiMarks[1], call: regexp.MustCompile(`(?s)<\|tool_call_begin\|>\s*(?:[^\s:<]*\.)?` +
		`([^\s.:<]+):\d+\s*<\|tool_call_argument_begin\|>\s*(.*?)\s*<\|tool_call_end\|>`)}
	harmonyTags = &tags{mark: harmonyCall, call: regexp.MustCompile(`(?s)to=functions\.([^\s<]+)\s*(?:<\|channel\|>commentary)?\s*` +
		`(?:<\|constrain\|>)?(?:json|code)?\s*<\|message\|>\s*(\{.*?\})\s*(?:<\|call\|>|$)`)}
)

// parse cuts an answer into its text and its calls, of tools that say of which types arguments are.
func (g *tags) parse(text string, tools []grammar.Tool) (content string, calls []call) {
	before, rest, found := strings.Cut(text, g.mark)
	rest = g.mark + rest
	all := g.call.FindAllStringSubmatch(rest, -1)
	left := strings.NewReplacer(g.mark, "", g.around, "").Replace(g.call.ReplaceAllString(rest, ""))
	if !found || len(all) == 0 || !blank(left) {
		return text, nil
	}
	for _, m := range all {
		arguments := m[2]
		if g.argument != nil {
			if arguments = g.object(m[2], schemasOf(tools, m[1])); !blank(g.argument.ReplaceAllString(m[2], "")) {
				return text, nil
			}
		} else if _, ok := as[members](json.RawMessage(arguments)); !ok {
			return text, nil
		}
		calls = append(calls, call{m[1], arguments})
	}
	return strings.TrimSpace(before), calls
}

// schemasOf are those of a tool's arguments.
func schemasOf(tools []grammar.Tool, name string) members {
	i := slices.IndexFunc(tools, func(t grammar.Tool) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	of, _ := as[members](tools[i].Parameters)
	all, _ := as[members](of["properties"])
	return all
}

// object is the arguments of a call in JSON, in their order; of two with one name the last counts, in the first's
// place.
func (g *tags) object(text string, schemas members) string {
	var names, values []string
	for _, m := range g.argument.FindAllStringSubmatch(text, -1) {
		value := m[2]
		if g.trim {
			value = strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
		}
		i := slices.Index(names, m[1])
		if i < 0 {
			i, names, values = len(names), append(names, m[1]), append(values, "")
		}
		values[i] = coerced(value, schemas[m[1]])
	}
	for i, name := range names {
		values[i] = quoted(name) + ": " + values[i]
	}
	return "{" + strings.Join(values, ", ") + "}"
}

func quoted(text string) string { return strings.TrimSpace(string(asJSON(text))) }

// begun are the types of values by what they begin with.
var begun = map[byte]string{'n': "null", 't': "boolean", 'f': "boolean", '"': "string", '[': "array", '{': "object"}

// typesOf are those that a schema allows, itself or as one of several.
func typesOf(schema json.RawMessage) (out []string) {
	s, _ := as[members](schema)
	if t := s.text("type"); t != "" {
		out = append(out, t)
	}
	list, _ := as[[]string](s["type"])
	out = append(out, list...)
	values, _ := as[[]json.RawMessage](s["enum"])
	for _, x := range values {
		kind := begun[x[0]]
		if kind == "" { // a number
			kind = map[bool]string{true: "number", false: "integer"}[strings.ContainsAny(string(x), ".eE")]
		}
		out = append(out, kind)
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		some, _ := as[[]json.RawMessage](s[key])
		for _, x := range some {
			out = append(out, typesOf(x)...)
		}
	}
	if out == nil {
		return []string{"string"}
	}
	return out
}

// coercions are how a text is a value of a type, "" where it is none, in the order in which vLLM tries them
// (coerce_to_schema_type).
var coercions = []struct {
	kind string
	of   func(text string) string
}{
	{"null", func(t string) string { return map[bool]string{true: "null"}[strings.EqualFold(t, "null")] }},
	{"integer", whole},
	{"number", func(t string) string {
		x, err := strconv.ParseFloat(strings.TrimSpace(t), 64)
		if n := whole(t); n != "" || err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
			return n
		}
		return string(asJSON(x))
	}},
	{"boolean", func(t string) string {
		return map[string]string{"true": "true", "1": "true", "false": "false", "0": "false"}[strings.ToLower(strings.TrimSpace(t))]
	}},
	{"object", inJSON}, {"array", inJSON},
}

func whole(t string) string {
	if n, ok := new(big.Int).SetString(strings.TrimSpace(t), 10); ok && len(t) <= 4300 { // as Python bounds them
		return n.String()
	}
	return ""
}

func inJSON(t string) string {
	if json.Valid([]byte(t)) {
		return t
	}
	return ""
}

// coerced is a text as a value in JSON of a schema's type; of none it is what it is in JSON where no text is asked for,
// else a text.
func coerced(text string, schema json.RawMessage) string {
	types := typesOf(schema)
	for _, c := range coercions {
		if slices.Contains(types, c.kind) {
			if v := c.of(text); v != "" {
				return v
			}
		}
	}
	if v := inJSON(text); v != "" && !slices.Contains(types, "string") {
		return v
	}
	return quoted(text)
}
