package format

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// TestParsePair: every published form of a pair of answers gives the same, and each fault is named.
func TestParsePair(t *testing.T) {
	parse := func(text string) (*Pair, error) {
		return ParsePair(&dataset.Document{Parts: []dataset.Part{{Name: "json", Bytes: []byte(text)}}})
	}
	for _, text := range []string{
		`{"prompt": "q", "chosen": " a", "rejected": " b", "margin": 0.5}`,
		// HH-RLHF
		`{"chosen": "\n\nHuman: x\n\nAssistant: a", "rejected": "\n\nHuman: x\n\nAssistant: b"}`,
	} {
		p, err := parse(text)
		require.NoError(t, err, text)
		require.False(t, p.Chat)
		require.Equal(t, []string{" a", " b"}, []string{p.Chosen, p.Rejected})
	}
	turns := func(text string) string { return `[{"role": "user", "content": "q"}` + text + "]" }
	a, b := `, {"role": "assistant", "content": "a"}`, `, {"role": "assistant", "content": "b"}`
	for _, text := range []string{
		`{"prompt": ` + turns("") + `, "chosen": [` + a[2:] + `], "rejected": [` + b[2:] + `]}`,
		`{"chosen": ` + turns(a) + `, "rejected": ` + turns(b) + `}`,
		// UltraFeedback, which has the prompt as a text too
		`{"prompt": "q", "prompt_id": "7", "messages": [], "score_chosen": 9, "chosen": ` + turns(a) +
			`, "rejected": ` + turns(b) + `}`,
		// OpenAI
		`{"input": {"messages": ` + turns("") + `}, "preferred_output": [` + a[2:] +
			`], "non_preferred_output": [` + b[2:] + `]}`,
	} {
		p, err := parse(text)
		require.NoError(t, err, text)
		require.True(t, p.Chat)
		require.Equal(t, [][]dataset.Message{{{Role: "user", Content: "q"}},
			{{Role: "assistant", Content: "a"}},
			{{Role: "assistant", Content: "b"}}}, [][]dataset.Message{p.Prompt, p.Better, p.Worse}, text)
	}
	call := `, {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": %s}}]}, {"role": "tool", "content": "1"}`
	p, err := parse(`{"chosen": ` + turns(fmt.Sprintf(call, `{"x": 1, "y": 2}`)+a) + `, "rejected": ` + turns(fmt.Sprintf(call, `{"y": 2, "x": 1}`)+b) + `}`)
	require.NoError(t, err)
	require.Len(t, p.Prompt, 3, "the turns of both are one prompt, whatever the order of keys in each one's column")
	for text, why := range map[string]string{
		`{"prompt": "q", "chosen": "a", "rejected": "a"}`:                "two answers are equal",
		`{"prompt": "q", "chosen": "a", "rejected": null}`:               `no "rejected"`,
		`{"chosen": "a", "rejected": "b"}`:                               `no "prompt"`,
		`{"prompt": "", "chosen": "a", "rejected": "b"}`:                 "prompt is empty",
		`{"prompt": "q", "chosen": "a", "rejected": "b", "margin": "x"}`: `"margin" is no number`,
		`{"chosen": ` + turns(a) + `, "rejected": ` + turns(a) +
			`}`: "two answers are equal",
		`{"chosen": ` + turns("") + `, "rejected": ` + turns(b) +
			`}`: "no turn of the assistant",
		`{"chosen": [` + a[2:] + `], "rejected": [` + b[2:] +
			`]}`: "no prompt",
		`{"prompt": [{"role": "robot", "content": "q"}], "chosen": [` + a[2:] + `], "rejected": [` + b[2:] +
			`]}`: `role "robot"`,
	} {
		_, err := parse(text)
		require.ErrorContains(t, err, why, text)
	}
}
