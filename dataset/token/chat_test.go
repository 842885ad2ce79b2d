package token

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// marked shows a text with what the model is to learn in brackets.
func marked(tok *Tokenizer, ids []int32, mask []bool) string {
	var out strings.Builder
	for i := 0; i < len(ids); {
		j := i
		for j < len(ids) && mask[j] == mask[i] {
			j++
		}
		text := tok.Decode(ids[i:j], false)
		if mask[i] {
			text = "⟦" + text + "⟧"
		}
		out.WriteString(text)
		i = j
	}
	return out.String()
}

// Ids and masks of templates with generation blocks are those of the Python library.
func TestMasksGolden(t *testing.T) {
	var g struct {
		Templates map[string]string `json:"templates"`
		Chats     [][]Message       `json:"chats"`
		Cases     []struct {
			Tokenizer string  `json:"tokenizer"`
			Template  string  `json:"template"`
			Chat      int     `json:"chat"`
			IDs       []int32 `json:"ids"`
			Mask      []int   `json:"mask"`
		} `json:"cases"`
	}
	require.NoError(t, json.Unmarshal(unzip(t, "masks.json.gz"), &g))
	require.GreaterOrEqual(t, len(g.Cases), 40)
	for _, c := range g.Cases {
		tok, _ := loadGolden(t, c.Tokenizer)
		tmpl, err := NewTemplate(g.Templates[c.Template], nil)
		require.NoError(t, err)
		ids, mask, err := EncodeChat(tok, tmpl, g.Chats[c.Chat], ChatOptions{})
		require.NoError(t, err)
		require.Equal(t, c.IDs, ids, "%+v", c)
		want := make([]bool, len(c.Mask))
		for i, m := range c.Mask {
			want[i] = m == 1
		}
		require.Equal(t, want, mask, "%s %s chat %d: %s, want %s", c.Tokenizer, c.Template, c.Chat,
			marked(tok, ids, mask), marked(tok, ids, want))
	}
}

const chatML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor " +
	"%}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

// qwen3 writes an empty block of thoughts before the last answer only, so earlier turns look different
// once others follow.
const qwen3 = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and " +
	"loop.last %}<think>\n\n</think>\n\n{% endif %}{{ m.content }}{% for c in m.tool_calls " +
	"%}\n<tool_call>{{ c.name }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}{% if " +
	"add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

var talk = []Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Hi"},
	{Role: "assistant", Content: "Hello!"}, {Role: "user", Content: "Bye"},
	{Role: "assistant", Content: "Ciao."}}

// Without blocks the turns are found by rendering the messages up to them.
func TestAssistantSpans(t *testing.T) {
	tok, _ := loadGolden(t, "qwen")
	for _, c := range []struct {
		why, template, want string
		o                   ChatOptions
	}{
		{"a plain template", chatML,
			"<|im_start|>system\nBe " +
				"brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Hello!<|im_end|>\n⟧<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n⟦Ciao.<|im_end|>\n⟧", ChatOptions{}},
		{"only the last turn", chatML,
			"<|im_start|>system\nBe " +
				"brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n⟦Ciao.<|im_end|>\n⟧", ChatOptions{LastTurnOnly: true}},
		{"turns that change when others follow", qwen3,
			"<|im_start|>system\nBe " +
				"brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Hello!<|im_end|>\n⟧<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n⟦<think>\n\n</think>\n\nCiao.<|im_end|>\n⟧", ChatOptions{}},
		{"text that begins inside a token",
			"{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}{% if add_generation_prompt " +
				"%}assistant{% endif %}",
			"systemBe brief.userHiassistant⟦Hello!⟧userByeassistant⟦Ciao.⟧", ChatOptions{}},
		{"text in front that depends on what follows",
			"{{ messages | length }}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}",
			"5system:Be brief.;user:Hi;assistant:⟦Hello!;⟧user:Bye;assistant:⟦Ciao.;⟧", ChatOptions{}},
		{"an end that is written otherwise when messages follow",
			"{% for m in messages %}{{ m.role }}:{{ m.content }}{{ ';' if loop.last else ',' }}{% endfor " +
				"%}{% if add_generation_prompt %}assistant:{% endif %}",
			"system:Be brief.,user:Hi,assistant:⟦Hello!⟧,user:Bye,assistant:⟦Ciao.;⟧", ChatOptions{}},
	} {
		tmpl, err := NewTemplate(c.template, nil)
		require.NoError(t, err)
		ids, mask, err := EncodeChat(tok, tmpl, talk, c.o)
		require.NoError(t, err, c.why)
		text, err := tmpl.Render(talk, nil, false, nil)
		require.NoError(t, err)
		require.Equal(t, tok.Encode(text, false), ids, "ids are those of the whole text")
		require.Equal(t, c.want, marked(tok, ids, mask), c.why)
	}
}

// A tool call has no content to find the end by; what follows it is found all the same.
func TestAssistantSpansToolCalls(t *testing.T) {
	tok, _ := loadGolden(t, "qwen")
	tmpl, err := NewTemplate(qwen3, nil)
	require.NoError(t, err)
	call := Message{Role: "assistant",
		Raw: json.RawMessage(`{"role":"assistant","content":"","tool_calls":[{"name":"f"}]}`)}
	messages := []Message{{Role: "user", Content: "Go"}, call, {Role: "tool", Content: "1"},
		{Role: "assistant", Content: "One."}}
	ids, mask, err := EncodeChat(tok, tmpl, messages, ChatOptions{})
	require.NoError(t, err)
	require.Equal(t,
		"<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\n⟦<tool_call>f</tool_call><|im_end|>\n⟧<|im_start|>tool\n1<|im_end|>\n<|im_start|>assistant\n⟦<think>\n\n</think>\n\nOne.<|im_end|>\n⟧", marked(tok, ids, mask))
}

// A template whose turns cannot be told apart is an error that says so, not a wrong mask.
func TestUnstableTemplate(t *testing.T) {
	tok, _ := loadGolden(t, "qwen")
	for _, src := range []string{
		"{% for m in messages %}{{ m.content | length }};{% endfor %}{% for m in messages %}{{ m.role }}:" +
			"{{ m.content }};{% endfor %}",
		"{{ messages | length }}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}" +
			"{{ messages[2].content }}",
	} {
		tmpl, err := NewTemplate(src, nil)
		require.NoError(t, err)
		_, _, err = EncodeChat(tok, tmpl, talk, ChatOptions{})
		require.ErrorContains(t, err, "cannot tell which text message 2")
		ids, mask, err := EncodeChat(tok, tmpl, talk, ChatOptions{TrainOnPrompt: true})
		require.NoError(t, err)
		require.NotContains(t, mask, false)
		require.NotEmpty(t, ids)
	}
}

// The template sees a raw message with its keys in their order, special tokens, tools and extra variables.
func TestRenderVariables(t *testing.T) {
	tmpl, err := NewTemplate("{{ bos_token }}{{ messages[0] | tojson }}{{ tools | tojson }}{{ x }}{{ "+
		"strftime_now('%Y-%m-%d') }}", &Config{BOS: "<s>"})
	require.NoError(t, err)
	raw := Message{Role: "user", Raw: json.RawMessage(`{"z":1,"role":"user","content":[{"type":"text"}]}`)}
	text, err := tmpl.Render([]Message{raw}, json.RawMessage(`[{"b":1,"a":2}]`), true,
		map[string]any{"x": true})
	require.NoError(t, err)
	require.Equal(t, `<s>{"z": 1, "role": "user", "content": [{"type": "text"}]}[{"b": 1, "a": 2}]True2024-07-26`, text)
	_, err = tmpl.Render([]Message{{Raw: json.RawMessage(`[]`)}}, nil, true, nil)
	require.ErrorContains(t, err, "message 0")
	_, err = NewTemplate("", nil)
	require.ErrorContains(t, err, "no chat template")
	_, err = NewTemplate("{% if %}", nil)
	require.ErrorContains(t, err, "line 1")
}

// A Chat is the encoder of package dataset, takes a conversation's own tools, and tells its options apart.
func TestChat(t *testing.T) {
	tok, _ := loadGolden(t, "qwen")
	tmpl, err := NewTemplate("{{ tools | tojson }}{{ x }}"+chatML, nil)
	require.NoError(t, err)
	var enc dataset.ChatEncoder = NewChat(tok, tmpl, ChatOptions{Tools: []string{"usual"}})
	ids, mask, err := enc.EncodeMessages(talk[1:3], []byte(`[{"name":"f"}]`), []byte(`{"x":1}`))
	require.NoError(t, err)
	require.Equal(t, "[{\"name\": "+
		"\"f\"}]1<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Hello!<|im_end|>\n⟧",
		marked(tok, ids, mask))
	ids, mask, err = enc.EncodeMessages(talk[1:3], nil, nil)
	require.NoError(t, err)
	require.Contains(t, marked(tok, ids, mask), `["usual"]<|im_start|>`)
	other := NewChat(tok, tmpl, ChatOptions{LastTurnOnly: true})
	require.NotEqual(t, enc.Fingerprint(), other.Fingerprint())
	require.Equal(t, other.Fingerprint(), NewChat(tok, tmpl, ChatOptions{LastTurnOnly: true}).Fingerprint())
}

// Encoding with spans gives the ids of plain encoding, whatever the tokenizer.
func TestSpansKeepIDs(t *testing.T) {
	text := goldenText(t)
	for _, name := range goldenNames(t) {
		tok, g := loadGolden(t, name)
		for i := range g.IDs[:200] {
			ids, mask := tok.encodeSpans(text[i], [][2]int{{len(text[i]) / 3, len(text[i]) / 2}})
			require.True(t, slices.Equal(tok.Encode(text[i], false), ids), "%s line %d", name, i)
			require.Len(t, mask, len(ids))
		}
	}
}

// EncodeChat is encodeChat without edits.
func EncodeChat(tok *Tokenizer, tmpl *Template, messages []Message,
	o ChatOptions) (ids []int32, lossMask []bool, err error) {
	ids, lossMask, _, err = encodeChat(tok, tmpl, messages, o, nil)
	return ids, lossMask, err
}
