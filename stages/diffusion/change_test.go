package diffusion

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/texts"
)

// TestChangesAreDiffusers: captions with images before them have the states that
// QwenImageEditPlusPipeline has of them, within 1e-5 of their length: the pixels are equal, and sums of
// at most 96 products are in another order. The template and the sizes of images are the pipeline's.
func TestChangesAreDiffusers(t *testing.T) {
	t.Parallel()
	var want struct {
		Template string
		Drop     int
		Areas    []int
		Sizes    [][4]int
		Files    [][]byte
		Every    int
		Cases    []struct {
			Caption string
			Images  []int
			States  []float64
			Rows    int
		}
	}
	const dir = "testdata/change"
	text, err := os.ReadFile(filepath.Join(dir, "want.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &want))
	require.Equal(t, want.Template, texts.QwenImageEdit.Text)
	require.Equal(t, want.Drop, texts.QwenImageEdit.Drop)
	require.Equal(t, sightArea, want.Areas[0])
	for i, s := range want.Sizes {
		w, h := bounded(s[0], s[1], want.Areas[i/(len(want.Sizes)/2)])
		require.Equal(t, s, [4]int{s[0], s[1], w, h})
	}

	encoder := t.TempDir()
	require.NoError(t, os.CopyFS(encoder, os.DirFS("../../stages/family/testdata/qwen2.5-vl")))
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(encoder, name), text, 0o600))
	}
	require.NoError(t, os.Remove(filepath.Join(encoder, "golden.safetensors"))) // no weights
	p := &captionPart{dir: encoder}
	p.tok, err = texts.OpenTokenizer(encoder)
	require.NoError(t, err)
	template := texts.QwenImageEdit
	require.NoError(t, template.Check(p.tok))
	p.template = &template
	p.decoder, err = texts.OpenDecoder(encoder, ref.New(), tensor.F32, template)
	require.NoError(t, err)
	defer p.decoder.Close()
	p.look, err = p.sight()
	require.NoError(t, err)
	for _, c := range want.Cases {
		var images [][]byte
		for _, i := range c.Images {
			images = append(images, want.Files[i])
		}
		states, err := p.changes(string(format.JoinImages(images, c.Caption)))
		require.NoError(t, err)
		require.Len(t, states, c.Rows*32)
		off, all := 0.0, 0.0
		for i, v := range c.States {
			off += math.Pow(float64(states[i*want.Every])-v, 2)
			all += v * v
		}
		require.Less(t, math.Sqrt(off/all), 1e-5, "%q", c.Caption)
		t.Logf("figure %q %.1e", c.Caption, math.Sqrt(off/all))
	}
	_, err = p.changes(string(format.JoinImages(want.Files[:1], "a <|image_pad|>")))
	require.ErrorContains(t, err, "the caption itself has the token")
	_, err = p.changes("no images")
	require.Error(t, err)
}
