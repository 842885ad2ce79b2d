package format

import (
	"bytes"
	"encoding/json"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/dataset/token"
)

// gemmaImages are the expander of Gemma 3's processor and a tokenizer that has its marks, but for those left out.
func gemmaImages(t *testing.T, without string) (*ProcessorExpander, *token.Tokenizer, error) {
	b, err := os.ReadFile(filepath.Join("testdata", "videotext", "qwen.tokenizer.json"))
	require.NoError(t, err)
	var all map[string]any
	require.NoError(t, json.Unmarshal(b, &all))
	added, id := all["added_tokens"].([]any), 900_000
	for _, mark := range []string{"<start_of_image>", "<image_soft_token>", "<end_of_image>"} {
		if mark != without {
			added = append(added, map[string]any{"id": id, "content": mark, "special": true,
				"normalized": false,
				"lstrip":     false, "rstrip": false, "single_word": false})
		}
		id++
	}
	var rest []any // of the tokenizer's own marks those of images
	for _, a := range added {
		if text := a.(map[string]any)["content"].(string); !strings.Contains(text, "image_pad") {
			rest = append(rest, a)
		}
	}
	all["added_tokens"] = rest
	b, err = json.Marshal(all)
	require.NoError(t, err)
	home := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(home, "tokenizer.json"), b, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(home, "preprocessor_config.json"),
		[]byte(`{"image_processor_type": "Gemma3ImageProcessor", "do_pan_and_scan": null, "image_seq_length": 4,
			"size": {"height": 56, "width": 56}}`), 0o600))
	tok, err := token.Load(filepath.Join(home, "tokenizer.json"))
	require.NoError(t, err)
	p, err := media.Load(home)
	require.NoError(t, err)
	x, err := NewProcessorExpander(p, tok)
	return x, tok, err
}

// TestImageText: text that belongs to an image is part of the conversation before it is cut into tokens, so that line
// breaks join those of the template as in transformers' processor; features take the places of the soft tokens alone.
func TestImageText(t *testing.T) {
	x, tok, err := gemmaImages(t, "")
	require.NoError(t, err)
	tmpl, err := token.NewTemplate(`{%- for m in messages -%}<{{ m.role }}>
{% for p in m.content %}{% if p.type == 'image' %}<start_of_image>{% else %}{{ p.text }}{% endif %}{% endfor %}
{% endfor -%}`, nil)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, 30, 20))))
	conv := Conversation{}
	for range 2 {
		conv.Media = append(conv.Media, dataset.Media{Kind: dataset.Image, Key: "a.png", Bytes: b.Bytes()})
	}
	conv.Messages = []dataset.Message{{Role: "user", Raw: json.RawMessage(
		`{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "this or"}, {"type": "image"}]}`)}}
	v := &VisionEncoder{Chat: token.NewChat(tok, tmpl, token.ChatOptions{TrainOnPrompt: true}), Expander: x}
	films, err := v.films(conv.Media)
	require.NoError(t, err)
	ids, loss, err := v.encode(conv, films)
	require.NoError(t, err)
	s, err := v.expand(ids, loss, conv.Media, films)
	require.NoError(t, err)
	one := "\n\n<start_of_image>" + strings.Repeat("<image_soft_token>", 4) + "<end_of_image>\n\n"
	require.Equal(t, tok.Encode("<user>\n"+one+"this or"+one, false), s.Tokens)
	soft, _ := tok.TokenID("<image_soft_token>")
	n := 0
	for _, m := range s.Media {
		require.Len(t, m.Spans, 1)
		for at := m.Spans[0].From; at < m.Spans[0].To; at++ {
			require.Equal(t, soft, s.Tokens[at])
			require.False(t, s.Loss[at], "features are not learnt")
			n++
		}
	}
	require.Equal(t, 8, n)
	_, _, err = x.Expand(&conv.Media[0], 1)
	require.ErrorContains(t, err, "only conversations are written so")
	conv.Media[0].Bytes = []byte("no image")
	_, err = v.films(conv.Media)
	require.ErrorContains(t, err, "a.png: it is not an image")
	x, _, err = gemmaImages(t, "<end_of_image>")
	require.NoError(t, err)
	_, err = x.written(&conv.Media[1], 1)
	require.ErrorContains(t, err, "has no token <end_of_image>")
}
