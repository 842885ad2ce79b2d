package serve

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/trained"
)

// spelled are the tokens of a small vocabulary that spells JSON; no letter begins a word that it does not end.
const spelled = "{ } [ ] \" : , Ġ 0 1 2 3 4 5 7 . b c d f h true null {\" \": \", get ( ) \\n <tool_call> </tool_call> name arguments x - é"

// spells writes a model whose tokens spell JSON, with a chat template that knows tools, and opens it.
func spells(t *testing.T, template string) *trained.Trained {
	t.Helper()
	dir := t.TempDir()
	from := "../run/testdata/preference/policy"
	for _, name := range []string{"config.json", "model.safetensors", "tokenizer.json",
		"tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(t, err)
		var c map[string]any
		switch name {
		case "tokenizer.json":
			require.NoError(t, json.Unmarshal(b, &c))
			vocab := map[string]int{"<pad>": 0, "</s>": 1, "<unk>": 2}
			for i, w := range strings.Fields(spelled) {
				if w == `\n` {
					w = "Ċ"
				} else if w == "é" {
					w = "Ã©"
				}
				vocab[w] = 3 + i
			}
			require.Len(t, vocab, 40)
			c["model"].(map[string]any)["vocab"] = vocab
			c["decoder"] = map[string]any{"type": "ByteLevel"}
			b, err = json.Marshal(c)
		case "tokenizer_config.json":
			require.NoError(t, json.Unmarshal(b, &c))
			c["chat_template"] = template
			b, err = json.Marshal(c)
		}
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
	}
	m, err := trained.Open(dir, "")
	require.NoError(t, err)
	return m
}

const hermes = `{% if tools %}{% for t in tools %}{{ t.function.name }} {% endfor %}<tool_call> {% endif %}` +
	`{% for m in messages %}{{ m.content }} {% for c in m.tool_calls or [] %}{{ c.function.arguments.x }} {% endfor %}` +
	`{% endfor %}d `

// TestForms: answers have the form that a request asks for, whatever it draws, in chats and completions, at
// once and as a stream, with a draft model and without.
func TestForms(t *testing.T) {
	for _, draft := range []bool{false, true} {
		o := Options{}
		if draft {
			o.Draft = spells(t, "")
			defer o.Draft.Close()
		}
		_, url := serving(t, spells(t, hermes), o)
		schema := `{"type": "object", "properties": {"h": {"enum": [7, "cé"]}, "b": {"type": "array", "items": {"type": "boolean",
			"const": true}, "maxItems": 2}}, "required": ["h"], "additionalProperties": false}`
		for _, c := range []struct{ key, want string }{
			{`"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": ` + schema + `}}`,
				`^\{\s*"h":\s*(7|"cé")(,\s*"b":\s*\[\s*(true(,\s*true)?)?\s*\])?\s*\}$`},
			{`"guided_json": ` + schema, `^\{\s*"h":`},
			{`"structured_outputs": {"regex": "[cb]{3}\\.\\d+"}`, `^[cb]{3}\.\d+$`},
			{`"guided_choice": ["null", "true"]`, `^(null|true)$`},
			{`"guided_grammar": "root ::= \"(\" (root | [b-d]) \")\""`, `^\(+[bcd]\)+$`},
		} {
			for seed := range 12 {
				body := `{"model": "words", "max_tokens": 60, "temperature": 1.5, "seed": ` + string(rune('0'+seed%10)) + `, ` + c.key
				_, v := post(t, url+"/v1/completions", body+`, "prompt": "c b"}`)
				require.NotNil(t, v["choices"], v)
				text := at(v, "choices", 0, "text").(string)
				if at(v, "choices", 0, "finish_reason") == "length" {
					continue
				}
				require.Regexp(t, regexp.MustCompile(c.want), text)
				_, v = post(t, url+"/v1/chat/completions", body+`, "messages": [{"role": "user", "content": "b"}]}`)
				require.Equal(t, "stop", at(v, "choices", 0, "finish_reason"), v)
				require.Regexp(t, regexp.MustCompile(c.want), at(v, "choices", 0, "message", "content"))
			}
		}
		code, v := post(t, url+"/v1/completions", `{"model": "words", "prompt": "c", "guided_choice": ["zebra"]}`)
		require.Equal(t, 422, code)
		require.Contains(t, at(v, "error", "message"), "has no token that goes on")
	}
}

// TestToolsUnknown: a call that must come needs no template that tells of tools, and one that may come does.
func TestToolsUnknown(t *testing.T) {
	_, url := serving(t, spells(t, "{% for m in messages %}{{ m['content'] }}{% endfor %}"), Options{})
	for choice, want := range map[string]string{`"required"`: "get", `{"type": "function", "function": {"name": "get"}}`: "get", `"auto"`: ""} {
		code, v := post(t, url+"/v1/chat/completions", `{"model": "words", "max_tokens": 90, "messages": [{"role": "user", "content": "c"}], "seed": 1,
			"tools": [{"type": "function", "function": {"name": "get", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}},
			"required": ["x"], "additionalProperties": false}}}], "tool_choice": `+choice+`}`)
		if want == "" {
			require.Equal(t, 400, code)
			require.Contains(t, at(v, "error", "message"), "says nothing of tools")
			continue
		}
		require.Equal(t, 200, code, v)
		require.Equal(t, want, at(v, "choices", 0, "message", "tool_calls", 0, "function", "name"), v)
		require.Regexp(t, `^\{\s*"x":\s*-?\d+\s*\}$`, at(v, "choices", 0, "message", "tool_calls", 0, "function", "arguments"))
	}
}

// TestTools: a forced call has the tool's name and arguments of its schema; a tool that is not forced may be called or
// not; answers and streams have calls as the openai client reads them, and conversations take them back.
func TestTools(t *testing.T) {
	_, url := serving(t, spells(t, hermes), Options{})
	tools := `"tools": [{"type": "function", "function": {"name": "get", "strict": true, "parameters": {"type": "object",
		"properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["x"]}}},
		{"type": "function", "function": {"name": "fdb"}}]`
	body := `{"model": "words", "max_tokens": 70, "temperature": 1.5, "messages": [{"role": "user", "content": "c"},
		{"role": "assistant", "content": null, "refusal": null, "tool_calls": [{"id": "1", "type": "function", "function":
		{"name": "get", "arguments": "{\"x\": 7}"}}]}, {"role": "tool", "tool_call_id": "1", "content": "c"}], ` + tools
	called := 0
	for seed := range 10 {
		with := body + `, "seed": ` + string(rune('0'+seed)) + `, "tool_choice": `
		get := `{"type": "function", "function": {"name": "get"}}`
		_, v := post(t, url+"/v1/chat/completions", with+get+"}")
		require.NotNil(t, v["choices"], v)
		require.Equal(t, "tool_calls", at(v, "choices", 0, "finish_reason"), v)
		require.Nil(t, at(v, "choices", 0, "message", "content"))
		calls := at(v, "choices", 0, "message", "tool_calls")
		require.Len(t, calls, 1)
		require.Equal(t, "get", at(calls, 0, "function", "name"))
		arguments := at(calls, 0, "function", "arguments").(string)
		require.Regexp(t, regexp.MustCompile(`^\{\s*"x":\s*\d\d?\s*\}$`), arguments)

		var last map[string]any
		for _, e := range events(t, url+"/v1/chat/completions", with+get+`, "stream": true}`) {
			last = e
			require.Empty(t, at(e, "choices", 0, "delta").(map[string]any)["content"])
		}
		require.Equal(t, "tool_calls", at(last, "choices", 0, "finish_reason"))
		streamed := at(last, "choices", 0, "delta", "tool_calls", 0)
		require.Equal(t, arguments, at(streamed, "function", "arguments"))
		require.Equal(t, 0.0, at(streamed, "index"))

		_, v = post(t, url+"/v1/chat/completions", with+`"auto"}`)
		m := at(v, "choices", 0, "message").(map[string]any)
		if m["tool_calls"] != nil {
			called++
		}
		text := ""
		for _, e := range events(t, url+"/v1/chat/completions", with+`"auto", "stream": true}`) {
			if s, ok := at(e, "choices", 0, "delta").(map[string]any)["content"].(string); ok {
				text += s
			}
		}
		whole, _ := m["content"].(string)
		require.Equal(t, strings.TrimSpace(whole), strings.TrimSpace(text))
		_, v = post(t, url+"/v1/chat/completions", with+`"none"}`)
		require.Nil(t, at(v, "choices", 0, "message").(map[string]any)["tool_calls"])
	}
	t.Logf("called %d times of 10 without being forced", called)
	for with, want := range map[string]string{
		`, "tool_choice": "perhaps"`:                                       "tool_choice is \"perhaps\"",
		`, "tool_choice": {"type": "function", "function": {"name": "y"}}`: "no tool \"y\"",
		`, "response_format": {"type": "json_object"}`:                     "is that of the calls",
	} {
		code, v := post(t, url+"/v1/chat/completions", body+with+"}")
		require.Equal(t, 400, code)
		require.Contains(t, at(v, "error", "message"), want)
	}
}

// TestCalls: what a model wrote is cut into text and calls, and what is no call stays text.
func TestCalls(t *testing.T) {
	style := func(template string) *style {
		s, err := styleOf("tools " + template)
		require.NoError(t, err)
		return s
	}
	hermes, llama := style("<tool_call>"), style(`"parameters": `)
	one := `<tool_call>
{"name": "f", "arguments": {"x": "</tool_call>"}}
</tool_call>`
	for text, want := range map[string]struct {
		content string
		calls   int
	}{"hello": {"hello", 0}, one: {"", 1}, "so: " + one + "\n" + one + "\n": {"so:", 2},
		one[:len(one)-13]: {"", 1}, "<tool_call>{": {"<tool_call>{", 0}, one + " and": {one + " and", 0},
		`<tool_call>{"name": 3}</tool_call>`:                     {`<tool_call>{"name": 3}</tool_call>`, 0},
		`<tool_call>{"name": "f", "arguments": [1]}</tool_call>`: {`<tool_call>{"name": "f", "arguments": [1]}</tool_call>`, 0},
		"<tool_call>\n": {"<tool_call>\n", 0}} {
		content, calls := hermes.parse(text)
		require.Equal(t, want.content, content)
		require.Len(t, calls, want.calls, text)
		c, said := &caller{style: hermes}, ""
		for i := range len(text) {
			said += c.push(text[i : i+1])
		}
		rest, streamed := c.end()
		require.Equal(t, calls, streamed)
		require.Equal(t, strings.TrimSpace(content), strings.TrimSpace(said+rest))
	}
	_, calls := llama.parse(` {"name": "f", "parameters": {"x": 1}}`)
	require.Equal(t, []call{{"f", `{"x": 1}`}}, calls)
	_, calls = llama.parse(`{"x": 1} is JSON`)
	require.Empty(t, calls)
	two := []call{{"f", `{"x": "]"}`}, {"g", "{}"}}
	deepseek := "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"x\": \"]\"}\n```<｜tool▁call▁end｜>\n" +
		"<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
	for template, texts := range map[string][]string{
		"[TOOL_CALLS] [": {`[TOOL_CALLS] [{"name": "f", "arguments": {"x": "]"}}, {"name": "g", "arguments": {}, "id": "abcdefghi"}]`,
			`[TOOL_CALLS][{"arguments": {"x": "]"}, "name": "f"},{"name": "g"}]`},
		"[TOOL_CALLS]": {`[TOOL_CALLS][{"name": "f", "arguments": {"x": "]"}}, {"name": "g", "arguments": {}}]`},
		"[TOOL_CALLS] [ARGS]": {`[TOOL_CALLS]f[ARGS]{"x": "]"}[TOOL_CALLS]g[ARGS]{}`,
			`[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"x": "]"}[TOOL_CALLS]g[CALL_ID]abcdefghj[ARGS]{}`},
		"<｜tool▁sep｜>```json": {deepseek},
		"<｜tool▁sep｜>": {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"x\": \"]\"}<｜tool▁call▁end｜>" +
			"<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
	} {
		s := style(template)
		for _, text := range texts {
			content, calls := s.parse("so " + text)
			require.Equal(t, two, calls, text)
			require.Equal(t, "so", content)
			for _, bad := range []string{text + " and", strings.Replace(text, "{}", "[]", 1) + "]",
				s.mark()} {
				content, calls = s.parse(bad)
				require.Empty(t, calls, bad)
				require.Equal(t, bad, content)
			}
		}
	}
	for _, template := range []string{"nothing", "[TOOL_CALLS]"} {
		_, err := styleOf(template)
		require.Error(t, err)
	}
}
