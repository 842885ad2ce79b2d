package configs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPresets: a pair of one's own is the names of its parts; what is given besides wins over them.
func TestPresets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pair.yaml")
	read := func(text string) (Model, error) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return ReadModel(file)
	}
	pair := "model_type: vlm\ntext_preset: qwen/3-8b\nvision: {preset: siglip-so400m-14-384}\n"
	m, err := read(pair)
	require.NoError(t, err)
	text, err := Published("qwen/3-8b")
	require.NoError(t, err)
	require.Equal(t, []any{"vlm", "qwen3", 4096, 36, 12288, true, text.Vocab, text.RopeTheta},
		[]any{m.ModelType, m.Text, m.Hidden, m.Layers, m.Intermediate, m.QKNorm, m.Vocab, m.RopeTheta})
	require.Equal(t, []any{"siglip", 27, 1152, 4304, 16, 384, 1, "gelu_pytorch_tanh"},
		[]any{m.Vision.Kind, m.Vision.Depth, m.Vision.Hidden, m.Vision.Inter, m.Vision.Heads,
			m.Vision.ImageSize, m.Vision.Merge, m.Vision.Act})
	require.Empty(t, m.TextPreset+m.Vision.Preset+m.Source)
	require.Zero(t, m.Parameters)

	m, err = read("num_hidden_layers: 4\nmodel_type: vlm\ntext_preset: qwen2.5-7b\nvision: {depth: 12, " +
		"preset: clip-vit-l-14-336, image_token_id: 7}\n")
	require.NoError(t, err)
	require.Equal(t, []any{"qwen2", 4, 3584, true}, []any{m.Text, m.Layers, m.Hidden, m.AttentionBias})
	require.Equal(t, []any{"clip", 12, 1024, -2, 7, "quick_gelu"}, []any{m.Vision.Kind, m.Vision.Depth,
		m.Vision.Hidden, m.Vision.FeatLayer, m.Vision.ImageToken, m.Vision.Act})

	require.NoError(t, os.WriteFile(file, []byte(pair), 0o644))
	c, err := Load(Request{Args: []string{"model.file=" + file, "data.paths=x", "data.kind=media",
		"model.overrides.vision.preset=rice-vit-l-14", "model.overrides.text_preset=llama/3.1-8b"}})
	require.NoError(t, err)
	require.Equal(t, []any{"llama", "llama3", "rice", 24}, []any{c.Model.Text, c.Model.RopeScaling.Type,
		c.Model.Vision.Kind, c.Model.Vision.Depth})
	require.Equal(t, "configs/models/llava-onevision/1.5-4b.yaml:24",
		c.Origin("model.overrides.vision.depth").String())

	c, err = Compose(Request{File: file, Args: []string{"model.overrides.num_hidden_layers=2"}})
	require.NoError(t, err)
	require.Equal(t, []any{"siglip", 2}, []any{c.Model.Vision.Kind, c.Model.Layers})

	for text, want := range map[string]string{
		"model_type: vlm\ntext_preset: qwen/3-8b\nvision: {preset: siglip-so400m-14-38}\n":             `pair.yaml:3: model.overrides.vision.preset: no vision tower is called "siglip-so400m-14-38"; did you mean "siglip-so400m-14-384"?`,
		"model_type: vlm\ntext_preset: qwen/3-9b\nvision: {preset: siglip-so400m-14-384}\n":            `pair.yaml:2: model.overrides.text_preset: no published decoder is called "qwen/3-9b"; did you mean "qwen/3-`,
		"model_type: vlm\ntext_preset: qwen-vl/2.5-7b\nvision: {preset: siglip-so400m-14-384}\n":       `no published decoder is called "qwen-vl/2.5-7b"`,
		"model_type: internvl\ntext_preset: qwen/3-8b\nvision: {preset: siglip-so400m-14-384}\n":       "vision.kind: siglip, but internvl has internvl",
		"model_type: vlm\ntext_preset: qwen/3-8b\nvision: {preset: siglip-so400m-14-384, depth: many}": "vision.depth",
	} {
		_, err := read(text)
		require.ErrorContains(t, err, want)
	}
}
