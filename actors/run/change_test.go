package run

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/trained"
)

// editOf32 is a small model of Qwen-Image-Edit's kind, which reads states of 32 numbers.
const editOf32 = `model_type: QwenImageTransformer2DModel
hidden_size: 24
num_hidden_layers: 2
num_attention_heads: 2
head_dim: 12
intermediate_size: 96
rms_norm_eps: 1.0e-6
in_channels: 3
out_channels: 3
latent_patch: [1, 2, 2]
text_dim: 32
axes_dims_rope: [4, 4, 4]
zero_cond_t: true
`

// changesOf writes a shard of images with one or two that they were made of, and returns one of these.
func changesOf(t *testing.T, path string) []byte {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	w := tar.NewWriter(file)
	add := func(name string, b []byte) {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(b))}))
		_, err := w.Write(b)
		require.NoError(t, err)
	}
	picture := func(side int, c color.RGBA) []byte {
		img := image.NewRGBA(image.Rect(0, 0, side, side))
		for p := range side * side {
			img.Set(p%side, p/side, c)
		}
		var b bytes.Buffer
		require.NoError(t, png.Encode(&b, img))
		return b.Bytes()
	}
	var first []byte
	for i := range 6 {
		first = picture(12, color.RGBA{0, uint8(40 * i), 200, 255})
		add(fmt.Sprintf("%03d.png", i), picture(8, color.RGBA{200, uint8(40 * i), 0, 255}))
		add(fmt.Sprintf("%03d.cond0.png", i), first)
		if i%2 == 1 {
			add(fmt.Sprintf("%03d.cond1.png", i), picture(8, color.RGBA{uint8(20 * i), 0, 0, 255}))
		}
		add(fmt.Sprintf("%03d.txt", i), []byte("make it red"))
	}
	add("006.png", first) // one that has nothing to change: it is set aside
	add("006.txt", []byte("make it red"))
	require.NoError(t, w.Close())
	require.NoError(t, file.Close())
	return first
}

// TestChanges: a model of Qwen-Image-Edit's kind trains on samples with one and with two images to
// change, with the same losses in one stage and in two and whether latents and states are kept or not; a
// sample without such an image is set aside; and it draws from images.
func TestChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := changesOf(t, filepath.Join(dir, "a.tar"))
	encoder := filepath.Join(dir, "text")
	require.NoError(t, os.CopyFS(encoder, os.DirFS("../../stages/family/testdata/qwen2.5-vl")))
	require.NoError(t, os.Remove(filepath.Join(encoder, "golden.safetensors")))
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"} {
		text, err := os.ReadFile(filepath.Join("../../stages/diffusion/testdata/change", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(encoder, name), text, 0o600))
	}
	file := filepath.Join(dir, "model.yaml")
	require.NoError(t, os.WriteFile(file, []byte(editOf32), 0o644))
	text := fmt.Sprintf("model: {file: %q}\ndata: {paths: [%q], seq_len: 528, split: [1, 0, 0]}\ndiffusion: "+
		"{autoencoder: pixels, sizes: [8x8], text_encoder: %q, condition_images: 2, condition_area: 1024, "+
		"caption_dropout: 0.3}\ntrain: {steps: 3, global_batch: 2}\noptimizer: {lr: 1.0e-3}\n", file,
		filepath.Join(dir, "a.tar"), encoder)
	var log, saved string
	run := func(more ...string) (losses []float64) {
		out := t.TempDir()
		log, saved = filepath.Join(out, "log"), filepath.Join(out, "saved")
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append([]string{
			"log.dir=" + log, "checkpoint.dir=" + saved}, more...)})
		require.NoError(t, err)
		require.NoError(t, Train(context.Background(), cfg, Options{Step: func(m Metrics) {
			losses = append(losses, m.Loss)
		}}))
		return losses
	}
	one := run()
	require.Len(t, one, 3)
	set, err := os.ReadFile(filepath.Join(log, "quarantine.jsonl"))
	require.NoError(t, err)
	require.Contains(t, string(set), "it has 0 images to be changed")
	require.InEpsilonSlice(t, one, run("plan.pp=2", "diffusion.cache=off"), 1e-5)

	m, err := trained.Open(saved, "")
	require.NoError(t, err)
	defer m.Close()
	draw := func(images ...[]byte) (pixels []float32, err error) {
		err = diffusion.Draw(m, context.Background(), []string{"make it red"}, diffusion.Drawing{Steps: 2, Guidance: 3,
			Images: images}, func(p diffusion.Picture) error {
			pixels = p.Pixels
			return nil
		})
		return pixels, err
	}
	a, err := draw(first)
	require.NoError(t, err)
	require.Len(t, a, 3*8*8)
	b, err := draw(first, first)
	require.NoError(t, err)
	require.NotEqual(t, a, b)
	_, err = draw()
	require.ErrorContains(t, err, "changes 1 to 2 images, and --image names 0")
}
