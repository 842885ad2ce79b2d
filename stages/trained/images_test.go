package trained

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// qwenImages are those of a Qwen3-VL's processor, as video settings say.
func qwenImages(t *testing.T, video string) *Images {
	dir := t.TempDir()
	for name, text := range map[string]string{"preprocessor_config.json": `{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 16, "size": {"shortest_edge": 1024, "longest_edge": 65536}}`, "video_preprocessor_config.json": video} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	p, err := media.Load(dir)
	require.NoError(t, err)
	return &Images{&family.Vision{Merge: 2, Patch: 16,
		Tower: block.Tower{Join: 4, PatchDim: 3 * 2 * 16 * 16}}, p}
}

// What does not fit its tokens or the tower is found before its sample is packed.
func TestPrepareFindsFaults(t *testing.T) {
	x := qwenImages(t, `{"video_processor_type": "Qwen3VLVideoProcessor"}`)
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, image.NewRGBA(image.Rect(0, 0, 64, 96))))
	m := &dataset.Media{Kind: dataset.Image, Key: "a.png", Bytes: b.Bytes(),
		Spans: []dataset.Span{{From: 3, To: 9}}}
	v, size, err := x.Prepare(m, 1)
	require.NoError(t, err)
	require.EqualValues(t, 64*96*3*2, size)
	g, values, err := x.Laid(m, v.(*media.Features))
	require.NoError(t, err)
	g.Spans = [][2]int32{{3, 9}}
	require.NoError(t, x.V.Check(&family.Images{Grids: []family.Grid{g}, Values: values}))
	m.Spans = []dataset.Span{{From: 3, To: 8}}
	_, _, err = x.Prepare(m, 1)
	require.ErrorContains(t, err, "6 features and stands as 5 tokens")
	_, _, err = x.Prepare(&dataset.Media{Kind: dataset.Image, Bytes: b.Bytes()[:b.Len()/2]}, 1)
	require.Error(t, err)
	_, _, err = x.Prepare(&dataset.Media{Kind: dataset.Audio}, 1)
	require.ErrorContains(t, err, "takes no audio")
	x.V.Tower.PatchDim /= 2
	_, _, err = x.Prepare(m, 1)
	require.ErrorContains(t, err, "the model takes patches of 768")
}

// A video goes from its file to a grid with a span a row in time, whose positions in time follow the text.
func TestPrepareVideo(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("no ffmpeg: a video's way from file to grid is left out")
	}
	x := qwenImages(t, `{"video_processor_type": "Qwen3VLVideoProcessor", "size": {"shortest_edge": 1024, "longest_edge": 24576}}`)
	clip, err := os.ReadFile(filepath.Join("..", "..", "dataset", "media", "testdata", "clip.mkv"))
	require.NoError(t, err)
	tok, err := token.Load(filepath.Join("..", "..", "dataset", "format", "testdata", "videotext",
		"qwen.tokenizer.json"))
	require.NoError(t, err)
	tmpl, err := token.NewTemplate(`{% for m in messages %}{{ m.role }}:{% for c in m.content %}{% if c.type == "video" %}<|vision_start|><|video_pad|><|vision_end|>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endfor %}`, nil)
	require.NoError(t, err)
	e, err := format.NewProcessorExpander(x.Processor, tok)
	require.NoError(t, err)
	enc := &format.VisionEncoder{Chat: token.NewChat(tok, tmpl, token.ChatOptions{TrainOnPrompt: true}),
		Expander: e}
	text := []byte(`{"messages": [{"role": "user", "content": "<video>What?"}, {"role": "assistant", "content": "A"}], "media": "video", "name": ["0.mkv"]}`)
	list, err := enc.EncodeSample(&dataset.Document{Key: "k",
		Parts: []dataset.Part{{Name: "0.mkv", Bytes: clip}, {Name: "json", Bytes: text}}})
	require.NoError(t, err)
	require.Len(t, list, 1)
	m := &list[0].Media[0]
	v, _, err := x.Prepare(m, 1)
	require.NoError(t, err)
	f := v.(*media.Features)
	require.Equal(t, f.Grid[0], len(m.Spans), "a span a row in time")
	require.Greater(t, len(m.Spans), 1)
	g, values, err := x.Laid(m, f)
	require.NoError(t, err)
	require.True(t, g.Video)
	for _, s := range m.Spans {
		g.Spans = append(g.Spans, [2]int32{s.From, s.To})
	}
	p := family.Images{Grids: []family.Grid{g}, Values: values}
	require.NoError(t, x.V.Check(&p))
	n := len(list[0].Tokens)
	pos := x.V.Positions(n, []int32{0, int32(n)}, &p)
	first, second := m.Spans[0], m.Spans[1]
	require.Equal(t, pos[3*first.From]+int32(max(g.H, g.W)/2)+second.From-first.To, pos[3*second.From])
}
