package token

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// headed writes no end of a turn: the token that begins the next one stops an answer.
const headed = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% endfor %}{% if " +
	"add_generation_prompt " +
	"%}<|im_start|>assistant\n{% endif %}"

// thinking begins an answer with a thought that a history leaves out, and ends the last turn by another token.
const thinking = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and " +
	"loop.last %}<think>\n" +
	"{{ m.reasoning_content }}\n</think>\n{% endif %}{{ m.content }}{{ '<|endoftext|>' if loop.last " +
	"else '<|im_end|>' }}" +
	"{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"

// What an assistant's turn wrote is found by what moves with its content, with the token that stops it.
func TestTurns(t *testing.T) {
	tok, _ := loadGolden(t, "qwen")
	u, a := Message{Role: "user", Content: "q1"}, Message{Role: "assistant", Content: "a1"}
	thought := Message{Role: "assistant", Raw: json.RawMessage(`{"role":"assistant","content":"a1","reasoning":"why"}`)}
	muted := a
	muted.Unlearnt = true
	const blocks = "{% for m in messages %}{% if m.role == 'assistant' %}A:{% generation %}{{ m.content " +
		"}}<|im_end|>" +
		"{% endgeneration %}{% else %}U:{{ m.content }}{% endif %}{% endfor %}"
	for _, c := range []struct {
		why, template string
		messages      []Message
		o             ChatOptions
		want          string
	}{
		{"the next header stops", headed, []Message{u, a, u, a}, ChatOptions{},
			"<|im_start|>user\nq1<|im_start|>assistant\n⟦a1<|im_start|>⟧user\nq1<|im_start|>" +
				"assistant\n⟦a1<|im_start|>⟧"},
		{"and two answers in a row", headed, []Message{u, a, a}, ChatOptions{},
			"<|im_start|>user\nq1<|im_start|>assistant\n⟦a1<|im_start|>⟧assistant\n⟦a1<|im_start|>⟧"},
		{"thoughts, another end", thinking, []Message{u, a, u, thought}, ChatOptions{},
			"<|im_start|>user\nq1<|im_end|><|im_start|>assistant\n⟦a1<|im_end|>⟧<|im_start|>" +
				"user\nq1<|im_end|>" +
				"<|im_start|>assistant\n<think>\n⟦why\n</think>\na1<|endoftext|>⟧"},
		{"a turn that is not learnt", chatML, []Message{u, muted, u, a}, ChatOptions{},
			"<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n<|im_start|>" +
				"user\nq1<|im_end|>\n" +
				"<|im_start|>assistant\n⟦a1<|im_end|>\n⟧"},
		{"a last turn alone, not learnt", chatML, []Message{u, a, u, muted}, ChatOptions{LastTurnOnly: true},
			"<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n<|im_start|>" +
				"user\nq1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n"},
		{"the same in blocks", blocks, []Message{u, a, u, muted}, ChatOptions{LastTurnOnly: true},
			"U:q1A:a1<|im_end|>U:q1A:a1<|im_end|>"},
		{"in blocks", blocks, []Message{u, muted, u, a}, ChatOptions{}, "U:q1A:a1<|im_end|>U:q1A:⟦a1<|im_end|>⟧"},
		{"where all else is learnt", blocks, []Message{u, muted, u, a}, ChatOptions{TrainOnPrompt: true},
			"⟦U:q1A:⟧a1⟦<|im_end|>U:q1A:a1<|im_end|>⟧"},
		{"the last turn of several blocks", "{% for m in messages %}{% if m.role == 'assistant' %}{% " +
			"for x in [1, 2] %}" +
			"{% generation %}{{ m.content }}{% endgeneration %};{% endfor %}{% else %}{{ m.content }}{% " +
			"endif %}{% endfor %}",
			[]Message{u, a, u, a}, ChatOptions{LastTurnOnly: true}, "q1a1;a1;q1⟦a1⟧;⟦a1⟧;"},
	} {
		tmpl, err := NewTemplate(c.template, nil)
		require.NoError(t, err)
		ids, mask, err := EncodeChat(tok, tmpl, c.messages, c.o)
		require.NoError(t, err, c.why)
		require.Equal(t, c.want, marked(tok, ids, mask), c.why)
	}
}

// A message comes to the template in one form, whoever wrote it.
func TestMessageForms(t *testing.T) {
	const show = "{% for m in messages %}{{ m | tojson }}\n{% endfor %}"
	for _, c := range []struct{ why, give, want string }{
		{"keys without a value", `{"role":"user","content":"q","tool_calls":null,"name":null}`,
			`{"role": "user", "content": "q"}`},
		{"reasoning", `{"role":"assistant","content":"a","reasoning":"r"}`,
			`{"thinking": "r", "role": "assistant", "content": "a", "reasoning": "r", ` +
				`"reasoning_content": "r"}`},
		{"arguments as " +
			"text", `{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"z\": 1, \"a\": 2.0}"}}]}`,
			`{"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": ` +
				`"f", "arguments": {"z": 1, "a": 2.0}}}]}`},
		{"no arguments", `{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":""}},` +
			`{"function":{"name":"f","arguments":null}},{"function":{"name":"f"}}]}`,
			`{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}, ` +
				`{"function": {"name": "f", "arguments": {}}}, {"function": {"name": "f", "arguments": ` +
				`{}}}]}`},
		{"the older " +
			"call", `{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`,
			`{"role": "assistant", "tool_calls": [{"id": "call_0", "type": "function", "function": ` +
				`{"name": "f", "arguments": {}}}]}`},
		{"no calls", `{"role":"assistant","content":"a","tool_calls":[]}`, `{"role": "assistant", ` +
			`"content": "a"}`},
		{"calls as text", `{"role":"assistant","tool_calls":"[{\"name\": \"f\", \"arguments\": {\"x\": ` +
			`1}}]"}`,
			`{"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"x": 1}}]}`},
		{"parts", `{"role":"user","content":[{"type":"image","text":null},` +
			`{"type":"text","text":"q","image":null}]}`,
			`{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "q"}]}`},
		{"developer", `{"role":"developer","content":"d"}`, `{"role": "system", "content": "d"}`},
	} {
		tmpl, err := NewTemplate(show, nil)
		require.NoError(t, err)
		m := Message{Raw: json.RawMessage(c.give)}
		text, err := tmpl.Render([]Message{m}, nil, false, nil)
		require.NoError(t, err, c.why)
		require.Equal(t, c.want+"\n", text, c.why)
	}
	tmpl, err := NewTemplate(show, nil)
	require.NoError(t, err)
	for give, want := range map[string]string{
		`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}`:   "no object",
		`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{x"}}]}`:    "no JSON",
		`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"\"x\""}}]}`: "no object",
		`{"role":"assistant","tool_calls":[{"function":{"arguments":{}}}]}`:                 "no name",
		`{"role":"assistant","tool_calls":{"name":"f"}}`:                                    "no list",
	} {
		_, err := tmpl.Render([]Message{{Raw: json.RawMessage(give)}}, nil, false, nil)
		require.ErrorContains(t, err, want, give)
	}
}

// The form that a template wants is found by what it writes; what it leaves out is an error.
func TestFormsTried(t *testing.T) {
	call := Message{Role: "assistant", Raw: json.RawMessage(`{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":"{\"x\":1}"}}]}`)}
	for _, c := range []struct {
		why, template string
		m             Message
		want, err     string
	}{
		{"texts are joined", "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name + " +
			"c.function.arguments }}{% endfor %}{% endfor %}",
			call, `f{"x":1}`, ""},
		{"texts are written", "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name }}" +
			"{{ c.function.arguments }}{% endfor %}{% endfor %}",
			call, `f{"x":1}`, ""},
		{"objects", "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name }}{{ " +
			"c.function.arguments | tojson }}{% endfor %}{% endfor %}",
			call, `f{"x": 1}`, ""},
		{"calls are lost", "{% for m in messages %}{{ m.content }}{% endfor %}", call, "", `the call of "f" in message 0 is missing`},
		{"a call beside another is lost", "{% for m in messages %}{{ m.tool_calls[0].function.name }}{{ m.tool_calls[0].function.arguments | tojson }}" +
			"{% endfor %}", Message{Role: "assistant", Raw: json.RawMessage(`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}},` +
			`{"function":{"name":"f","arguments":{"x":1}}}]}`)}, "", `the call of "f" in message 0 is missing`},
		{"thoughts beside a call without arguments may go", "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}" +
			"{% endfor %}{% endfor %}", Message{Role: "assistant", Raw: json.RawMessage(`{"role":"assistant","content":"<think>t</think>","tool_calls":[` +
			`{"function":{"name":"f","arguments":{"x":1}}},{"function":{"name":"g","arguments":{}}}]}`)}, `f{"x": 1}g{}`, ""},
		{"parts alone are read", "{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor " +
			"%}{% endfor %}",
			Message{Role: "user", Content: "q1"}, "q1", ""},
		{"texts alone are read", "{% for m in messages %}{{ 'U: ' + m.content }}{% endfor %}",
			Message{Role: "user", Raw: json.RawMessage(`{"role":"user","content":[{"type":"text","text":"q"},{"type":"text","text":"1"}]}`)}, "U: q1", ""},
		{"lists are printed", "{% for m in messages %}{{ m.content }}{% endfor %}",
			Message{Role: "user", Raw: json.RawMessage(`{"role":"user","content":[{"type":"text","text":"q1"}]}`)}, "q1", ""},
		{"an unknown role", "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}" +
			"{% endfor %}{% if add_generation_prompt %}A: {% endif %}",
			Message{Role: "system", Content: "s"}, "", "message 0 (system) leaves no trace"},
	} {
		tmpl, err := NewTemplate(c.template, nil)
		require.NoError(t, err)
		text, err := tmpl.Render([]Message{c.m}, nil, false, nil)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, c.why)
			_, err = tmpl.Render([]Message{c.m}, nil, true, nil)
			require.ErrorContains(t, err, c.err, "%s, where an answer is asked for", c.why)
			continue
		}
		require.NoError(t, err, c.why)
		require.Equal(t, c.want, text, c.why)
	}
}
