package serve

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/sample/grammar"
)

// TestThoughts: answers of models of each kind, cut anywhere, have the thoughts and the texts of vLLM's parsers, which were
// read; a kind is told by the chat template.
func TestThoughts(t *testing.T) {
	for _, c := range []struct{ template, prompt, answer, thoughts, said string }{
		{"<think> </think>", "<|im_start|>assistant\n", "<think>\nhm\n</think>\n\nyes", "\nhm\n", "\n\nyes"},
		{"<think> </think>", "<|im_start|>assistant\n<think>\n", "hm </thin </think>yes <think>", "hm </thin ", "yes <think>"},
		{"<think> </think>", "assistant\n<think>\n\n</think>\n\n", "yes </think>", "", "yes </think>"},
		{"<think> </think>", "assistant\n", "no thought", "", "no thought"},
		{"<think> </think>", "<think>", "hm", "hm", ""},
		{"<think> </think>", "<think>", "hm<tool_call>\n{}", "hm", "<tool_call>\n{}"},
		{"</think>", "<｜Assistant｜>", "<think>hm</think>yes", "hm", "yes"},
		{"</think>", "<｜Assistant｜>", "hm</think>yes", "hm", "yes"},
		{"[THINK]", "[/INST]", "[THINK]hm[/THINK]yes", "hm", "yes"},
		{"<seed:think>", "", "<seed:think>hm</seed:think>yes", "hm", "yes"},
		{"<|channel>", "<|turn>model\n", "<|channel>thought\nhm<channel|>yes", "hm", "yes"},
		{"Here is my thought process:", "", "Here is my thought process: a. Here is my response: b.", " a. ", " b."},
		{"</think> <answer>", "", "<think>\nhm\n</think>\n<answer>\nyes\n</answer>", "hm", "yes"},
		{"</think> <answer>", "", "<answer>\nyes\n</answer>", "", "yes"},
		{"</think> <response>", "<think>\n", "hm\n</think>\n\n<response>\nyes\n</response>\n", "hm\n", "yes"},
		{"</think> <response>", "<think>\n", "hm\n</think>\nyes", "hm\n", "\nyes"},
		{"<|channel|> <|message|>", "<|start|>assistant", "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes", "hm",
			"yes"},
		{"<|channel|> <|message|>", "<|start|>assistant", "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{\"x\": 1}", "",
			"to=functions.get <|constrain|>json<|message|>{\"x\": 1}"},
		{"<|channel|> <|message|>", "<|start|>assistant", "no channel", "", "no channel"},
	} {
		style := thinkingOf("auto", c.template)
		require.NotNil(t, style, c.template)
		for a := range len(c.answer) + 1 {
			for b := a; b <= len(c.answer); b++ {
				p, thoughts, said := &parting{of: style, in: style.at(c.prompt)}, "", ""
				for i, piece := range []string{c.answer[:a], c.answer[a:b], c.answer[b:]} {
					x, y := p.push(piece, i == 2)
					thoughts, said = thoughts+x, said+y
				}
				require.Equal(t, []string{c.thoughts, c.said}, []string{thoughts, said}, "%q cut at %d and %d", c.answer, a, b)
			}
		}
	}
	require.Nil(t, thinkingOf("auto", "{{ messages }}"))
	require.Nil(t, thinkingOf("", "<think> </think>"))
	require.NotNil(t, thinkingOf("", "<|channel|><|message|>"), "what gpt-oss says cannot be read otherwise")
	require.Equal(t, "[THINK]", thinkingOf("mistral", "<think> </think>").moves[0].mark, "a name goes before the template")
}

// TestThoughtsServed: thoughts have a field of their own, whole and streamed, in each API; without the parser they are
// texts, and who does not want them has none.
func TestThoughtsServed(t *testing.T) {
	const ask = `{"model": "words", "messages": [{"role": "user", "content": "w5"}], "max_tokens": 6, "temperature": 0, "logit_bias": {"9": -100}`
	_, plain := served(t, Options{})
	code, v := post(t, plain+"/v1/chat/completions", ask+"}")
	require.Equal(t, http.StatusOK, code, v)
	all := at(v, "choices", 0, "message", "content").(string)
	require.Nil(t, at(v, "choices", 0, "message").(map[string]any)["reasoning"])
	s, here := served(t, Options{})
	mark := all[2:6] // in the middle of words, as marks need not be tokens
	s.thinks = &thinking{begins: thought, moves: []move{{thought, mark, spoken, ""}}}
	code, v = post(t, here+"/v1/chat/completions", ask+"}")
	require.Equal(t, http.StatusOK, code, v)
	require.Equal(t, []any{all[:2], all[6:]}, []any{at(v, "choices", 0, "message", "reasoning"), at(v, "choices", 0, "message", "content")})
	thoughts, said := "", ""
	for _, e := range events(t, here+"/v1/chat/completions", ask+`, "stream": true}`) {
		d := at(e, "choices", 0, "delta").(map[string]any)
		x, _ := d["reasoning"].(string)
		y, _ := d["content"].(string)
		thoughts, said = thoughts+x, said+y
	}
	require.Equal(t, []string{all[:2], all[6:]}, []string{thoughts, said})
	code, v = post(t, here+"/v1/chat/completions", ask+`, "include_reasoning": false}`)
	require.Equal(t, http.StatusOK, code, v)
	require.Nil(t, at(v, "choices", 0, "message").(map[string]any)["reasoning"])
	require.Equal(t, all[6:], at(v, "choices", 0, "message", "content"))
	code, v = post(t, here+"/v1/messages", `{"model": "words", "messages": [{"role": "user", "content": "w5"}], "max_tokens": 6, "temperature": 0}`)
	require.Equal(t, http.StatusOK, code, v)
	require.Equal(t, "thinking", at(v, "content", 0, "type"))
}

// TestHarmonyCalls: calls of gpt-oss, as its two forms of headers have them, and of Granite.
func TestHarmonyCalls(t *testing.T) {
	for template, texts := range map[string][]string{"tools <|start|><|channel|><|message|>": {
		`to=functions.get <|constrain|>json<|message|>{"x": 1}`, `to=functions.get<|channel|>commentary json<|message|>{"x": 1}`,
		`to=functions.get<|channel|>commentary <|constrain|>json<|message|>{"x": 1}<|call|>`},
		"tools <|tool_call|>": {`<|tool_call|>[{"name": "get", "arguments": {"x": 1}}]`,
			"<|tool_call|> [ {\"name\": \"get\", \"arguments\": {\"x\": 1}} ]"}} {
		s, err := styleOf(template)
		require.NoError(t, err)
		s.tools = []grammar.Tool{{Name: "get"}}
		for _, text := range texts {
			content, calls := s.parse("I look. " + text)
			require.Equal(t, []call{{"get", `{"x": 1}`}}, calls, text)
			require.Equal(t, "I look.", content)
		}
	}
}
