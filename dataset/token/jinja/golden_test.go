package jinja

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// now is the date the golden was made for.
var now = time.Date(2024, 7, 26, 9, 5, 3, 0, time.UTC)

// outcome is what Python gave: a text with byte ranges of generation blocks, or an error.
type outcome struct {
	Text  string   `json:"text"`
	Spans [][2]int `json:"spans"`
	Error string   `json:"error"`
}

// unzip reads a golden written by bench/golden/token_jinja.py.
func unzip(t testing.TB, name string, into any) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	r, err := gzip.NewReader(bytes.NewReader(b))
	require.NoError(t, err)
	all, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(all, into))
}

// variables reads a JSON object, keeping the order of its keys.
func variables(t testing.TB, raw json.RawMessage) *Map {
	t.Helper()
	v, err := FromJSON(raw)
	require.NoError(t, err)
	return v.(*Map)
}

func evaluate(src string, vars *Map) (Output, error) {
	tmpl, err := Parse(src)
	if err != nil {
		return Output{}, err
	}
	return tmpl.Render(vars, Options{Now: now})
}

// check compares with Python: the same text, or an error where Python has one, with the same words where the
// template raised it.
func check(t *testing.T, label string, want outcome, got Output, err error) {
	t.Helper()
	if want.Error == "" {
		require.NoError(t, err, label)
		require.Equal(t, want.Text, got.Text, label)
		if len(want.Spans) > 0 || len(got.Generations) > 0 {
			require.Equal(t, want.Spans, got.Generations, label)
		}
		return
	}
	var e *Error
	require.True(t, errors.As(err, &e), "%s: want %s, got %q, %v", label, want.Error, got.Text, err)
	require.Positive(t, e.Line, label)
	if e.Raised {
		require.Equal(t, "TemplateError: "+e.Msg, want.Error, label)
	}
}

// Templates in the style of fifteen published models give what `transformers` gives, for every conversation.
func TestChatsGolden(t *testing.T) {
	var g struct {
		Special   json.RawMessage            `json:"special"`
		Templates map[string]string          `json:"templates"`
		Chats     map[string]json.RawMessage `json:"chats"`
		Cases     []struct {
			Template string `json:"template"`
			Chat     string `json:"chat"`
			outcome
		} `json:"cases"`
	}
	unzip(t, "chats.json.gz", &g)
	require.GreaterOrEqual(t, len(g.Cases), 150)
	for _, c := range g.Cases {
		vars := variables(t, g.Special)
		vars.Set("documents", nil)
		vars.Set("tools", nil)
		vars.Set("add_generation_prompt", false)
		chat := variables(t, g.Chats[c.Chat])
		for _, k := range chat.Keys() {
			v, _ := chat.Get(k)
			vars.Set(k, v)
		}
		got, err := evaluate(g.Templates[c.Template], vars)
		check(t, c.Template+" × "+c.Chat, c.outcome, got, err)
	}
}

// Expressions and statements give what jinja2 gives, and fail where it fails.
func TestSnippetsGolden(t *testing.T) {
	var g struct {
		Vars  json.RawMessage `json:"vars"`
		Cases []struct {
			Template string `json:"template"`
			outcome
		} `json:"cases"`
	}
	unzip(t, "snippets.json.gz", &g)
	require.GreaterOrEqual(t, len(g.Cases), 80)
	for _, c := range g.Cases {
		t.Run(strings.ReplaceAll(c.Template, "/", "∕"), func(t *testing.T) {
			got, err := evaluate(c.Template, variables(t, g.Vars))
			check(t, c.Template, c.outcome, got, err)
		})
	}
}
