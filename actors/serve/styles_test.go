package serve

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/sample/grammar"
	"github.com/lfactor/lfactor/stages/trained"
)

// TestStrictMarks: what a guide of strict tools lets be has no calls but those that fit, whatever white space
// stands in what they begin with.
func TestStrictMarks(t *testing.T) {
	const schema = `{"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"],
		"additionalProperties": false}`
	for template, texts := range map[string]map[string]bool{
		"tools [TOOL_CALLS] [": {
			`[TOOL_CALLS] [{"name": "get", "arguments": {"x": 1}}]`:     true,
			`Yes. [TOOL_CALLS][{"name": "get", "arguments": {"x": 1}}]`: true,
			`[TOOL_CALLS] [{"name": "get", "arguments": {"x": "no"}}]`:  false,
			`[TOOL_CALLS][{"name": "rm", "arguments": {"x": 1}}]`:       false,
			`[TOOL_CALLS]  [{"name": "rm", "arguments": {"x": 1}}]`:     false,
			"no calls [TOOL": true},
		"tools <tool_call>": {
			"<tool_call>\n{\"name\": \"get\", \"arguments\": {\"x\": 1}}\n</tool_call>": true,
			"<tool_call>{\"name\": \"rm\", \"arguments\": {\"x\": 1}}</tool_call>":      false},
		"tools <｜tool▁sep｜>": {
			"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"x\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>":  true,
			"<｜tool▁calls▁begin｜>\n<｜tool▁call▁begin｜>rm<｜tool▁sep｜>{\"x\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>": false},
	} {
		s, err := styleOf(template)
		require.NoError(t, err)
		c := s.calls
		c.Tools = []grammar.Tool{{Name: "get", Parameters: json.RawMessage(schema)}}
		c.Mark, c.Most, c.Free = s.mark(), -1, true
		g, err := c.Grammar()
		require.NoError(t, err)
		for text, want := range texts {
			at := grammar.NewMachine(g).Start()
			for i := 0; i < len(text) && at != nil; i++ {
				at = at.After(text[i])
			}
			require.Equal(t, want, at != nil && at.Ends(), text)
			_, calls := s.parse(text)
			for _, call := range calls {
				require.Equal(t, want, call.name == "get" && call.arguments == `{"x": 1}`, text)
			}
		}
	}
}

// TestContentKeys: what a part of a message has without effect is refused.
func TestContentKeys(t *testing.T) {
	for _, part := range []string{`{"type": "text", "text": "a", "foo": 1}`,
		`{"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa", "max_pixels": 100}}`,
		`{"type": "text", "text": "a", "image_url": {"url": "data:image/png;base64,aaaa"}}`} {
		_, _, err := contentOf(json.RawMessage("["+part+"]"), true)
		require.Error(t, err, part)
	}
	_, images, err := contentOf(json.RawMessage(`[{"type": "text", "text": "a"},
		{"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa", "detail": "auto"}}]`), true)
	require.NoError(t, err)
	require.Len(t, images, 1)
}

// TestRequestImages: the images of all messages together are bounded, before any is read.
func TestRequestImages(t *testing.T) {
	part := `{"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}`
	message := json.RawMessage(`{"role": "user", "content": [` + strings.Repeat(part+", ", 32) + part + `]}`)
	s := &Server{imageProcessor: &trained.ImageProcessor{}}
	_, err := s.conversation(&chatBody{Messages: []json.RawMessage{message, message}}, nil, &asked{}, &chatForm{})
	require.ErrorContains(t, err, "more than 64 images")
}
