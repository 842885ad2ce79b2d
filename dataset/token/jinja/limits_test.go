package jinja

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a hostile template tries ends soon, with an error that says which bound was met.
func TestLimits(t *testing.T) {
	for src, want := range map[string]string{
		"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}":                 "steps",
		"{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}": "bytes",
		"{{ 'a' * 1000000000000 }}": "too long",
		"{{ [1] * 1000000000000 }}": "too long",
		"{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}{% set ns.x = ns.x | replace('a', " +
			"'aa') %}{% endfor %}": "bytes",
		"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor " +
			"%}{{ ns.x }}": "bytes",
		"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor " +
			"%}{{ ns.x | tojson }}": "bytes",
		"{% set ns = namespace(x=[1]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}": "nested over 128",
		"{% set ns = namespace(x=[1]) %}{% for i in range(999) %}{% set ns.x = [ns.x] | select | list " +
			"%}{% endfor %}": "nested over 128",
		"{% set ns = namespace(x=1) %}{% for i in range(999) %}{% set ns.x = dict(a=ns.x) %}{% endfor %}": "nested over 128",
		"{% set ns = namespace(x=[1]) %}{% for i in range(999999) %}{% endfor %}":                         "range has over",
		"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}":                                                 "nested over 128",
		"{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}":                                         "nested over 128",
		"{{ [1] | batch(10 ** 12, 'x') | list }}":                                                         "steps",
		"{{ [1] | slice(10 ** 12, 'x') | list }}":                                                         "number of lists",
		strings.Repeat("(",
			1000): "x",
		"{{ " + strings.Repeat("(", 1000) + strings.Repeat(")", 1000) +
			"}}": "nested over 128",
		"{{ " + strings.Repeat("not ", 1000) +
			"x }}": "nested over 128",
		"{{ " + strings.Repeat("-", 1000) +
			"1 }}": "nested over 128",
		"{{ x" + strings.Repeat(".a", 10000) +
			" }}": "in a row",
		"{{ x" + strings.Repeat("|upper", 10000) +
			" }}": "in a row",
		strings.Repeat("{% if x %}",
			1000): "nested over 128",
		strings.Repeat("x", sourceMax+1): "over the limit",
		"{{ 9223372036854775807 + 1 }}":  "outside 64 bits",
		"{{ 10 ** 30 }}":                 "outside 64 bits",
		"{{ '%99999d' % 1 }}":            "too wide",
		"{{ 'a'.ljust(10 ** 12) }}":      "width",
		"{% include 'x' %}":              "not a block that chat templates may use",
		"{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ m() }}": "generation block",
	} {
		if want == "x" { // plain text, however odd
			out, err := evaluate(src, NewMap())
			require.NoError(t, err)
			require.Equal(t, src, out.Text)
			continue
		}
		_, err := evaluate(src, NewMap())
		var e *Error
		require.True(t, errors.As(err, &e), "%.60s: %v", src, err)
		require.Contains(t, e.Msg, want, "%.100s", src)
	}
}

// Two equal trees that share nothing take a bounded look and count as different when they are too large.
func TestEqualBounded(t *testing.T) {
	grow := "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] " +
		"%}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
	out, err := evaluate(grow+"{{ ns.x == ns.x }} {{ ns.x == ns.y }}", NewMap())
	require.NoError(t, err)
	require.Equal(t, "True False", out.Text)
}

// An error names the line of the innermost statement.
func TestErrorLine(t *testing.T) {
	for src, line := range map[string]int{
		"a\nb\n{{ 1 / 0 }}":                                     3,
		"{% if true %}\n\n{{ x.y }}\n{% endif %}":               3,
		"{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}\n{{ m() }}": 2,
		"x\n{% set a =\n\n %}":                                  4,
		"\n\n{{ 'abc":                                           3,
		"{# \n\n #}{% nope %}":                                  3,
	} {
		_, err := evaluate(src, NewMap())
		var e *Error
		require.True(t, errors.As(err, &e), src)
		require.Equal(t, line, e.Line, "%q: %v", src, err)
	}
}

// Values given from Go keep the order of JSON keys; Go maps come sorted.
func TestFromGo(t *testing.T) {
	v, err := FromGo(map[string]any{"b": []any{1, "x", nil, true, 1.5}, "a": []string{"s"}})
	require.NoError(t, err)
	require.Equal(t, "{'a': ['s'], 'b': [1, 'x', None, True, 1.5]}", repr(v))
	v, err = FromJSON([]byte(`{"z": 1, "a": 1.0, "m": {"y": [1e2, 12345678901234567890]}}`))
	require.NoError(t, err)
	require.Equal(t, "{'z': 1, 'a': 1.0, 'm': {'y': [100.0, 1.2345678901234567e+19]}}", repr(v))
	_, err = FromGo(struct{}{})
	require.ErrorContains(t, err, "struct {}")
	for _, bad := range []string{`{"a":`, `1 2`, strings.Repeat("[", 200), `{"a" 1}`, `nul`} {
		_, err = FromJSON([]byte(bad))
		require.Error(t, err, bad)
	}
}

// FuzzRender: no template and no values make the evaluator panic or run past its bounds.
func FuzzRender(f *testing.F) {
	var g struct {
		Cases []struct {
			Template string `json:"template"`
		} `json:"cases"`
	}
	unzip(f, "snippets.json.gz", &g)
	for _, c := range g.Cases {
		f.Add(c.Template, `{"s":"a b","l":[1,2],"d":{"k":null},"n":3}`)
	}
	f.Add("{{'\xa4'|capitalize}}", "0")
	f.Fuzz(func(t *testing.T, src, vars string) {
		tmpl, err := Parse(src)
		if err != nil {
			return
		}
		m := NewMap()
		if v, err := FromJSON([]byte(vars)); err == nil {
			if given, ok := v.(*Map); ok {
				m = given
			}
		}
		out, err := tmpl.Render(m, Options{Now: now})
		if err == nil && len(out.Text) > outputMax {
			t.Fatalf("%d bytes of output", len(out.Text))
		}
	})
}

// TestMarkup: nothing has no items to choose from, a branch that is not taken may name any filter, and what is added to a text that | safe made is escaped, as by Python's
// jinja2 3.1.6 and MarkupSafe.
func TestMarkup(t *testing.T) {
	for src, want := range map[string]string{
		`{{ none | selectattr("a") | list }}{{ none | map("upper") | list | length }}{{ 0 | select | list }}`: "[]0[]",
		`{{ "<"|safe + "<" + "&'" }} {{ "<" + '"'|safe }} {{ "<"|safe ~ "<" }}`:                               `<&lt;&amp;&#39; &lt;" <<`,
		`{% if false %}{{ 1 | from_json }}{{ 1 is unheard }}{% endif %}x`:                                     "x",
		`{{ "a"|safe + {"k": 1}|tojson }} {{ "<"|e + "<"|safe + "<" }} {{ ("<"|safe) + "<" }}`:                `a{&#34;k&#34;: 1} &lt;<&lt; <&lt;`,
	} {
		out, err := evaluate(src, NewMap())
		require.NoError(t, err, src)
		require.Equal(t, want, out.Text, src)
	}
}
