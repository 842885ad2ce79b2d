package serve

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPythonic: calls as Python writes them have the arguments of its own parser (testdata/pythonic.json, by
// bench/golden/pythonic.py), and texts that it does not take are none.
func TestPythonic(t *testing.T) {
	raw, err := os.ReadFile("testdata/pythonic.json")
	require.NoError(t, err)
	var all []struct {
		Text  string
		Calls []struct {
			Name      string
			Arguments json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(raw, &all))
	for _, c := range all {
		got, ok := pythonic(c.Text)
		require.Equal(t, c.Calls != nil, ok, c.Text)
		for i, want := range c.Calls {
			require.Equal(t, want.Name, got[i].name, c.Text)
			require.JSONEq(t, string(want.Arguments), got[i].arguments, c.Text)
		}
		require.True(t, !ok || len(got) == len(c.Calls), c.Text)
	}
}

// TestPythonicStyles: calls lie between a kind's marks, with text before and behind.
func TestPythonicStyles(t *testing.T) {
	for template, text := range map[string]string{
		"tools <|tool_call_start|>": "I look. <|tool_call_start|>[get(x=1)]<|tool_call_end|>",
		"tools <function_calls>":    "I look. <function_calls>\nget(x=1)\nget(y='a')\n</function_calls>",
		"tools [func_name1(":        `[get(x=1)]`,
	} {
		s, err := styleOf(template)
		require.NoError(t, err)
		content, calls := s.parse(text)
		require.Equal(t, call{"get", `{"x": 1}`}, calls[0], text)
		if template != "tools [func_name1(" {
			require.Equal(t, "I look.", content)
		}
		for cut := range len(text) {
			k := &caller{style: s}
			said := k.push(text[:cut]) + k.push(text[cut:])
			rest, again := k.end()
			require.Equal(t, calls, again)
			require.Equal(t, content, said+rest, "%q cut at %d", text, cut)
		}
	}
	s, err := styleOf("tools [func_name1(")
	require.NoError(t, err)
	content, calls := s.parse("[1, 2]")
	require.Equal(t, "[1, 2]", content)
	require.Empty(t, calls)
}

// FuzzPythonic: whatever a model writes, calls have arguments in JSON.
func FuzzPythonic(f *testing.F) {
	f.Add(`[a(b="c", d=[1, {"e": None}])]`)
	f.Fuzz(func(t *testing.T, text string) {
		calls, _ := pythonic(text)
		for _, c := range calls {
			if _, ok := pythonic(text); ok && !json.Valid([]byte(c.arguments)) {
				t.Fatalf("%q: %s", text, c.arguments)
			}
		}
	})
}
