package format

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/dataset/token"
)

// promptCases are bench/golden/media_prompts.py's.
type promptCases struct {
	Models map[string]struct {
		Tokenizer, Template     string
		Image, Video, Processor json.RawMessage
	}
	Cases [][5]json.RawMessage // model, videos, messages, input_ids, second_per_grid_ts
}

// TestVideoPrompts: conversations with videos become the input_ids of transformers' processors, and spans
// are the tokens of each frame.
func TestVideoPrompts(t *testing.T) {
	dir := filepath.Join("testdata", "videotext")
	b, err := os.ReadFile(filepath.Join(dir, "cases.json"))
	require.NoError(t, err)
	var all promptCases
	require.NoError(t, json.Unmarshal(b, &all))
	require.Len(t, all.Cases, 3*len(all.Models))
	for i, c := range all.Cases {
		var model string
		require.NoError(t, json.Unmarshal(c[0], &model))
		t.Run(fmt.Sprintf("%s/%d", model, i%3), func(t *testing.T) {
			m := all.Models[model]
			tok, err := token.Load(filepath.Join(dir, m.Tokenizer+".tokenizer.json"))
			require.NoError(t, err)
			home := t.TempDir()
			for name, content := range map[string]json.RawMessage{"preprocessor_config": m.Image,
				"video_preprocessor_config": m.Video, "processor_config": m.Processor} {
				require.NoError(t, os.WriteFile(filepath.Join(home, name+".json"), content, 0o600))
			}
			p, err := media.Load(home)
			require.NoError(t, err)
			x, err := NewProcessorExpander(p, tok)
			require.NoError(t, err)
			checkPrompt(t, x, tok, m.Template, c)
		})
	}
}

func checkPrompt(t *testing.T, x *ProcessorExpander, tok *token.Tokenizer, template string,
	c [5]json.RawMessage) {
	var videos [][4]float64
	var messages []json.RawMessage
	var want []int32
	for i, to := range []any{1: &videos, 2: &messages, 3: &want} {
		if to != nil {
			require.NoError(t, json.Unmarshal(c[i], to))
		}
	}
	x.probe = func(b []byte) (media.VideoInfo, error) {
		v := videos[b[0]]
		return media.VideoInfo{Frames: int(v[0]), W: int(v[1]), H: int(v[2]), FPS: v[3]}, nil
	}
	checkEvery(t, x.processor.Video, videos, c[4])
	conv := Conversation{}
	for i := range videos {
		conv.Media = append(conv.Media, dataset.Media{Kind: dataset.Video, Key: fmt.Sprint(i),
			Bytes: []byte{byte(i)}})
	}
	for _, m := range messages {
		conv.Messages = append(conv.Messages, dataset.Message{Role: roleOf(t, m), Raw: m})
	}
	tmpl, err := token.NewTemplate(template, nil)
	require.NoError(t, err)
	for _, whole := range []bool{false, true} {
		v := &VisionEncoder{Chat: token.NewChat(tok, tmpl, token.ChatOptions{TrainOnPrompt: whole}),
			Expander: x}
		films, err := v.films(conv.Media)
		require.NoError(t, err)
		ids, loss, err := v.encode(conv, films)
		require.NoError(t, err)
		s, err := v.expand(ids, loss, conv.Media, films)
		require.NoError(t, err)
		require.Equal(t, want, s.Tokens)
		require.Len(t, s.Media, len(videos))
		require.Len(t, s.Loss, len(s.Tokens))
		n := 0
		for i, m := range s.Media {
			_, e, err := x.video(&conv.Media[i])
			require.NoError(t, err)
			require.Contains(t, []int{1, e.Grid[0]}, len(m.Spans))
			sum := 0
			for _, span := range m.Spans {
				sum += int(span.To - span.From)
				for k := span.From; k < span.To; k++ {
					require.Equal(t, s.Tokens[m.Spans[0].From], s.Tokens[k])
					require.False(t, s.Loss[k])
				}
			}
			require.Equal(t, e.Tokens, sum)
			n += sum
		}
		stands := s.Tokens[s.Media[0].Spans[0].From]
		for _, id := range s.Tokens {
			if id == stands {
				n--
			}
		}
		require.Zero(t, n, "every token of a feature is in a span")
	}
}

// checkEvery: the time from one row of the grid to the next is the processor's second_per_grid_ts.
func checkEvery(t *testing.T, p media.VideoProcessor, videos [][4]float64, want json.RawMessage) {
	var every []float64
	require.NoError(t, json.Unmarshal(want, &every))
	for i, e := range every {
		v := media.VideoInfo{Frames: int(videos[i][0]), W: int(videos[i][1]), H: int(videos[i][2]),
			FPS: videos[i][3]}
		at, err := p.Pick(v)
		require.NoError(t, err)
		c := &media.Clip{At: at, FPS: v.FPS, Of: v.Frames}
		for range at {
			c.Frames = append(c.Frames, media.NewImage(v.W, v.H))
		}
		f, err := p.Video(c)
		require.NoError(t, err)
		require.InEpsilon(t, e, f.Every, 1e-12)
	}
}

func roleOf(t *testing.T, raw json.RawMessage) string {
	var m struct{ Role string }
	require.NoError(t, json.Unmarshal(raw, &m))
	return m.Role
}

// TestVideoPromptFaults: what cannot be written is an error.
func TestVideoPromptFaults(t *testing.T) {
	s, err := media.ParseSettings("video_preprocessor_config.json", []byte(`{}`))
	require.NoError(t, err)
	p := imageProcessor(t, "Qwen2VLImageProcessor", `{"patch_size": 16}`)
	p.Video, err = media.NewVideoProcessor("Qwen3VLVideoProcessor", s)
	require.NoError(t, err)
	x, err := NewProcessorExpander(p, names{"<|image_pad|>": 1, "<|video_pad|>": 2})
	require.NoError(t, err)
	x.probe = func([]byte) (media.VideoInfo, error) {
		return media.VideoInfo{Frames: 20, W: 64, H: 64, FPS: 10}, nil
	}
	m := dataset.Media{Kind: dataset.Video, Key: "a.mp4"}
	_, _, err = x.Expand(&m, 1)
	require.ErrorContains(t, err, "text between the frames")
	_, err = x.written(&m, 1)
	require.ErrorContains(t, err, "no token <|vision_start|>")
	x, err = NewProcessorExpander(p, names{"<|image_pad|>": 1, "<|video_pad|>": 2, "<|vision_start|>": 3,
		"<|vision_end|>": 4})
	require.NoError(t, err)
	x.probe = func([]byte) (media.VideoInfo, error) {
		return media.VideoInfo{Frames: 20, W: 64, H: 64, FPS: 10}, nil
	}
	c := Conversation{Media: []dataset.Media{{Kind: dataset.Image, Key: "a.png"}, m}}
	for text, says := range map[string]string{
		"<|image_pad|><|vision_start|><|video_pad|><|vision_end|>": "",
		"<|vision_start|><|video_pad|><|vision_end|><|image_pad|>": "0 marks <|image_pad|> before that " +
			"of a.mp4, and the conversation has 1 images",
		"<|image_pad|> and nothing": "no mark <|vision_start|><|video_pad|><|vision_end|> for a.mp4",
	} {
		v := &VisionEncoder{Chat: rendered(text), Expander: x}
		films, err := v.films(c.Media)
		require.NoError(t, err)
		_, _, err = v.encode(c, films)
		if says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, says)
	}
	v := &VisionEncoder{Chat: struct{ dataset.ChatEncoder }{rendered("")}, Expander: x}
	films, err := v.films(c.Media)
	require.NoError(t, err)
	_, _, err = v.encode(c, films)
	require.ErrorContains(t, err, "cannot write")
	p.Video = struct{ media.VideoProcessor }{p.Video}
	_, _, err = x.Expand(&m, 1)
	require.ErrorContains(t, err, "is not known")
}

// rendered is a chat template's text.
type rendered string

func (r rendered) Fingerprint() string { return string(r) }
func (r rendered) EncodeMessages([]dataset.Message, []byte, []byte) ([]int32, []bool, error) {
	return nil, nil, nil
}
func (r rendered) EncodeEdited(_ []dataset.Message, _, _ []byte,
	edit func(string) ([]dataset.Edit, error)) ([]int32, []bool, error) {
	_, err := edit(string(r))
	return nil, nil, err
}
