package token

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type someTokens map[string]bool

func (s someTokens) TokenID(name string) (int32, bool) { return 1, s[name] }

// TestNamedTemplates: conversations in formats that go by a name have the text of LoongForge's templates,
// and the answers are what is learnt.
func TestNamedTemplates(t *testing.T) {
	raw, err := os.ReadFile("testdata/chat_names.json")
	require.NoError(t, err)
	var cases []struct {
		Name     string      `json:"name"`
		Messages []Message   `json:"messages"`
		Turns    [][2]string `json:"turns"`
	}
	require.NoError(t, json.Unmarshal(raw, &cases))
	require.Len(t, cases, 54)
	for _, c := range cases {
		src, ok := NamedTemplate(c.Name, someTokens{})
		require.True(t, ok, c.Name)
		tmpl, err := NewTemplate(src, &Config{BOS: "<BOS>", EOS: "<EOS>"})
		require.NoError(t, err, "%s: %s", c.Name, src)
		_, out, err := tmpl.prepare(c.Messages, nil, nil, false)
		require.NoError(t, err, "%s: %s", c.Name, src)
		var text strings.Builder
		var answers []string
		for _, turn := range c.Turns {
			text.WriteString(turn[0] + turn[1])
			answers = append(answers, turn[1])
		}
		require.Equal(t, text.String(), out.Text, "%s: %s", c.Name, src)
		var learnt []string
		for _, s := range out.Generations {
			learnt = append(learnt, out.Text[s[0]:s[1]])
		}
		require.Equal(t, answers, learnt, c.Name)
	}
}

// TestNamedMedia: images and videos become the tokens that the tokenizer has; a role that no format knows is an error.
func TestNamedMedia(t *testing.T) {
	parts := Message{Raw: json.RawMessage(`{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}, {"type": "video"}]}`)}
	for want, tokens := range map[string]someTokens{
		"<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What?<|vision_start|><|video_pad|><|vision_end|><|im_end|>": {"<|image_pad|>": true, "<|video_pad|>": true, "<|vision_start|>": true},
		"<|im_start|>user\n<IMG_CONTEXT>What?<video><|im_end|>":                                                                   {"<IMG_CONTEXT>": true, "<image>": true},
	} {
		src, _ := NamedTemplate("qwen2-vl", tokens)
		tmpl, err := NewTemplate(src, nil)
		require.NoError(t, err)
		text, err := tmpl.Render([]Message{parts}, nil, false, nil)
		require.NoError(t, err)
		require.Contains(t, text, want)
		_, err = tmpl.Render([]Message{{Role: "tool", Content: "x"}}, nil, false, nil)
		require.ErrorContains(t, err, "not tool")
	}
	_, ok := NamedTemplate("qwen4", someTokens{})
	require.False(t, ok)
}
