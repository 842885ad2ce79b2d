package serve

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/sample/grammar"
)

// taggedTools are tools with arguments of every type.
var taggedTools = []grammar.Tool{{Name: "get_weather", Parameters: json.RawMessage(`{"properties": {"city": {"type": "string"},
	"n": {"type": "integer"}, "x": {"anyOf": [{"type": "number"}, {"type": "null"}]}, "on": {"type": "boolean"},
	"list": {"type": ["array", "null"]}, "o": {"type": "object"}}}`)}, {Name: "f", Parameters: nil}}

// drawnCall is a call with its arguments as texts, and as what they are.
type drawnCall struct {
	name   string
	keys   []string
	texts  map[string]string
	values map[string]any
}

// drawCall draws a call. Texts have what looks like marks in them, where they end nothing.
func drawCall(r *rand.Rand) drawnCall {
	c := drawnCall{name: taggedTools[r.IntN(2)].Name, texts: map[string]string{}, values: map[string]any{}}
	texts := []string{"Rome", "a < b & c > d", "two\nlines", "", "<think>", "{\"a\": 1}", "né\"\\", "7", "null", "</tool", "<function"}
	for _, key := range []string{"city", "n", "x", "on", "list", "o", "else"} {
		if r.IntN(2) == 0 {
			continue
		}
		text := texts[r.IntN(len(texts))]
		var value any = text
		if c.name == "get_weather" {
			switch key {
			case "n":
				text = fmt.Sprint(r.IntN(2000) - 1000)
			case "x":
				text = []string{"0.25", "-3", "1e3", "null"}[r.IntN(4)]
			case "on":
				text = []string{"true", "false"}[r.IntN(2)]
			case "list":
				text = []string{`[1, "a"]`, "null", "[]"}[r.IntN(3)]
			case "o":
				text = []string{`{"b": {"c": [1.5]}}`, "{}"}[r.IntN(2)]
			}
			if key != "city" && key != "else" {
				value = nil
				if err := json.Unmarshal([]byte(text), &value); err != nil {
					panic(err)
				}
			}
		}
		c.keys, c.texts[key], c.values[key] = append(c.keys, key), text, value
	}
	return c
}

// families write calls as the models' chat templates do.
var families = map[string]struct {
	template          string
	from, between, to string
	call              func(i int, c drawnCall) string
}{
	"glm": {template: "<tool_call> <arg_key>", between: "\n", call: func(_ int, c drawnCall) string {
		out := "<tool_call>" + c.name + "\n"
		for _, k := range c.keys {
			out += "<arg_key>" + k + "</arg_key>\n<arg_value>" + c.texts[k] + "</arg_value>\n"
		}
		return out + "</tool_call>"
	}},
	"coder": {template: "<tool_call> <function=", between: "\n", call: func(_ int, c drawnCall) string {
		out := "<tool_call>\n<function=" + c.name + ">\n"
		for _, k := range c.keys {
			out += "<parameter=" + k + ">\n" + c.texts[k] + "\n</parameter>\n"
		}
		return out + "</function>\n</tool_call>"
	}},
	"minimax": {template: "<minimax:tool_call> <invoke", from: "<minimax:tool_call>\n", between: "\n", to: "\n</minimax:tool_call>", call: func(_ int, c drawnCall) string {
		out := `<invoke name="` + c.name + "\">\n"
		for _, k := range c.keys {
			out += `<parameter name="` + k + `">` + c.texts[k] + "</parameter>\n"
		}
		return out + "</invoke>"
	}},
	"kimi": {template: "<|tool_call_argument_begin|>", from: "<|tool_calls_section_begin|>", to: "<|tool_calls_section_end|>", call: func(i int, c drawnCall) string {
		return fmt.Sprintf("<|tool_call_begin|>functions.%s:%d<|tool_call_argument_begin|>%s<|tool_call_end|>", c.name, i, asJSON(c.values))
	}},
}

// TestTagged: 600 drawn answers of each family are cut into their text and their calls, with arguments of the types
// that the tools say, at once and as a stream that is cut anywhere; what is cut off, or goes on, is text.
func TestTagged(t *testing.T) {
	for name, f := range families {
		t.Run(name, func(t *testing.T) {
			of, err := styleOf("tools " + f.template)
			require.NoError(t, err)
			s := *of
			s.tools = taggedTools
			r := rand.New(rand.NewPCG(3, uint64(len(name))))
			for range 600 {
				var want []drawnCall
				text := f.from
				for i := range 1 + r.IntN(3) {
					if want = append(want, drawCall(r)); i > 0 {
						text += f.between
					}
					text += f.call(i, want[i])
				}
				text += f.to
				says := []string{"", "So be it.", "<tool is a word"}[r.IntN(3)]
				whole := says + "\n" + text + []string{"", "\n"}[r.IntN(2)]
				content, calls := s.parse(whole)
				require.Len(t, calls, len(want), whole)
				require.Equal(t, says, content)
				for i, c := range calls {
					require.Equal(t, want[i].name, c.name)
					var got map[string]any
					require.NoError(t, json.Unmarshal([]byte(c.arguments), &got), c.arguments)
					require.Equal(t, want[i].values, got, whole)
				}
				k, said := &caller{style: &s}, ""
				for rest := whole; rest != ""; {
					n := 1 + r.IntN(min(len(rest), 9))
					said, rest = said+k.push(rest[:n]), rest[n:]
				}
				more, streamed := k.end()
				require.Equal(t, calls, streamed)
				require.Equal(t, says, strings.TrimSpace(said+more))
				for _, bad := range []string{whole + " and", text[:len(text)-3], s.mark()} {
					content, calls := s.parse(bad)
					require.Empty(t, calls, bad)
					require.Equal(t, bad, content)
				}
			}
		})
	}
}

// TestTaggedValues: 600 drawn calls have the arguments that vLLM's parsers give them (bench/golden/tool_values.py).
func TestTaggedValues(t *testing.T) {
	raw, err := os.ReadFile("testdata/tagged.json")
	require.NoError(t, err)
	var all []struct {
		Template, Text        string
		Properties, Arguments json.RawMessage
	}
	require.NoError(t, json.Unmarshal(raw, &all))
	require.Len(t, all, 600)
	for _, c := range all {
		of, err := styleOf("tools " + c.Template)
		require.NoError(t, err)
		s := *of
		s.tools = []grammar.Tool{{Name: "get", Parameters: asJSON(map[string]any{"properties": c.Properties})}}
		_, calls := s.parse(c.Text)
		require.Len(t, calls, 1, c.Text)
		require.JSONEq(t, string(c.Arguments), calls[0].arguments, "%s %s", c.Text, c.Properties)
	}
}
