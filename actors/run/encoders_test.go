package run

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// wanOf12 is a small model that reads states of 12 numbers.
const wanOf12 = `model_type: WanTransformer3DModel
hidden_size: 24
num_hidden_layers: 2
num_attention_heads: 2
head_dim: 12
intermediate_size: 32
in_channels: 3
out_channels: 3
latent_patch: [1, 2, 2]
text_dim: 12
text_rows: 6
freq_dim: 8
`

// squares writes a shard of images with captions.
func squares(t *testing.T, path string) { shapes(t, path, 8) }

// shapes is the same of images that are by turns so many pixels wide.
func shapes(t *testing.T, path string, wide ...int) {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	w := tar.NewWriter(file)
	add := func(name string, b []byte) {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(b))}))
		_, err := w.Write(b)
		require.NoError(t, err)
	}
	for i := range 24 {
		across := wide[i%len(wide)]
		img := image.NewRGBA(image.Rect(0, 0, across, 8))
		for p := range 8 * across {
			img.Set(p%across, p/across, color.RGBA{uint8(40 * (i % 6)), uint8(p * 3), uint8(i), 255})
		}
		var b bytes.Buffer
		require.NoError(t, png.Encode(&b, img))
		add(fmt.Sprintf("%03d.png", i), b.Bytes())
		add(fmt.Sprintf("%03d.txt", i), []byte([]string{"red", "blue square", "red disc", ""}[i%4]))
	}
	require.NoError(t, w.Close())
	require.NoError(t, file.Close())
}

// captionWords is a folder of an encoder without weights, with a tokenizer of words.
func captionWords(t *testing.T, dir string) {
	t.Helper()
	encoder := map[string]any{"architectures": []string{"UMT5EncoderModel"}, "model_type": "umt5",
		"vocab_size": 7,
		"d_model":    12, "d_kv": 4, "num_heads": 3, "d_ff": 20, "num_layers": 2}
	text, err := json.Marshal(encoder)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644))
	wordTokenizer(t, dir, 1)
}

// wordTokenizer writes a tokenizer of words whose texts end with token eos.
func wordTokenizer(t *testing.T, dir string, eos int) {
	t.Helper()
	vocab := map[string]int{"<pad>": 0, "</s>": eos, "<unk>": 2, "red": 3, "blue": 4, "square": 5, "disc": 6}
	tokenizer := map[string]any{"version": "1.0", "added_tokens": []any{
		map[string]any{"id": 0, "content": "<pad>", "special": true},
		map[string]any{"id": eos, "content": "</s>", "special": true}},
		"pre_tokenizer": map[string]any{"type": "Whitespace"},
		"post_processor": map[string]any{"type": "TemplateProcessing", "single": []any{
			map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}},
			map[string]any{"SpecialToken": map[string]any{"id": "</s>", "type_id": 0}}}, "pair": []any{},
			"special_tokens": map[string]any{"</s>": map[string]any{"id": "</s>", "ids": []int{eos},
				"tokens": []string{"</s>"}}}},
		"model": map[string]any{"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}}
	settings := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>",
		"eos_token": "</s>"}
	for name, v := range map[string]any{"tokenizer.json": tokenizer, "tokenizer_config.json": settings} {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
}

// encodersRun trains a small model of diffusion with an encoder of captions and returns its losses, and the
// folder of its export.
func encodersRun(t *testing.T, model, dir, encoder string, more ...string) (losses []float64,
	export string) {
	t.Helper()
	text := fmt.Sprintf(`
model: %s
data: {paths: [%q], seq_len: 16, split: [1, 0, 0]}
diffusion: {autoencoder: pixels, sizes: [8x8], text_encoder: %q, caption_dropout: 0.3}
train: {steps: 4, global_batch: 4, micro_batch: 2}
optimizer: {lr: 1.0e-3}
`, model, filepath.Join(dir, "a.tar"), encoder)
	out := t.TempDir()
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append([]string{
		"log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" + filepath.Join(out, "saved"),
		"checkpoint.save_hf=true"}, more...)})
	require.NoError(t, err)
	require.NoError(t, Train(context.Background(), cfg, Options{Step: func(m Metrics) {
		losses = append(losses, m.Loss)
	}}))
	return losses, filepath.Join(out, "saved", "release_hf_weights")
}

// TestEncodersAgree: an encoder of captions gives the same losses to the bit whether its states are made
// beside the data or by blocks before the denoiser, on one rank and as the first stage of a pipeline, and
// whether they are kept or not; an encoder that learns gives others.
func TestEncodersAgree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	captionWords(t, filepath.Join(dir, "text"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(wanOf12), 0o644))
	model := fmt.Sprintf("{file: %q}", filepath.Join(dir, "model.yaml"))
	drawn, export := encodersRun(t, model, dir, filepath.Join(dir, "text"), "diffusion.encoders=live",
		"diffusion.train_text_encoder=true")
	encoder := filepath.Join(export, "text_encoder")
	require.FileExists(t, filepath.Join(encoder, "model.safetensors"))

	live, _ := encodersRun(t, model, dir, encoder, "diffusion.encoders=live")
	require.Len(t, live, 4)
	require.NotEqual(t, drawn, live)
	for _, more := range [][]string{{"diffusion.encoders=live", "plan.pp=2"}, {"diffusion.cache=off"},
		{"diffusion.cache=" + filepath.Join(dir, "kept")}, {"diffusion.cache=" + filepath.Join(dir,
			"kept")}} {
		got, _ := encodersRun(t, model, dir, encoder, more...)
		require.Equal(t, live, got, "%v", more)
	}

	// the export goes on: the denoiser and its encoder are read from their folders
	on, _ := encodersRun(t, fmt.Sprintf("{path: %q}", filepath.Join(export, "transformer")), dir, encoder)
	require.Less(t, on[0], drawn[0])

	// an encoder without weights ends the run before it reads a sample
	text := fmt.Sprintf("model: %s\ndata: {paths: [%q], seq_len: 16}\ndiffusion: {autoencoder: pixels, sizes: [8x8], text_encoder: %q}\n",
		model, filepath.Join(dir, "a.tar"), filepath.Join(dir, "text"))
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: []string{"log.dir=" + t.TempDir()}})
	require.NoError(t, err)
	_, err = Open(cfg)
	require.ErrorContains(t, err, "diffusion.text_encoder: ")

	// but not under a scheduler that has it say something else
	noise := filepath.Join(dir, "noise.json")
	require.NoError(t, os.WriteFile(noise, []byte(`{"_class_name": "DDIMScheduler", "prediction_type": "epsilon"}`), 0o644))
	args := []string{"model.path=" + filepath.Join(export, "transformer"), "diffusion.scheduler=" + noise}
	text = fmt.Sprintf("data: {paths: [%q], seq_len: 16}\ndiffusion: {autoencoder: pixels, sizes: [8x8], text_encoder: %q}\n",
		filepath.Join(dir, "a.tar"), encoder)
	_, err = configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: args})
	require.ErrorContains(t, err, "diffusion.scheduler: the model learnt to say flow_prediction under")
	_, err = configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append(args,
		"model.init=random")})
	require.NoError(t, err)
}

// TestDiffusionSaysItsOwn: the curve of a model of diffusion has no nats, and an image with its caption is
// one medium of data.images_max.
func TestDiffusionSaysItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	captionWords(t, filepath.Join(dir, "text"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(wanOf12), 0o644))
	model, log := fmt.Sprintf("{file: %q}", filepath.Join(dir, "model.yaml")), filepath.Join(dir, "log")
	losses, _ := encodersRun(t, model, dir, filepath.Join(dir, "text"), "diffusion.encoders=live",
		"data.images_max=1", "log.dir="+log)
	require.Len(t, losses, 4)
	text, err := os.ReadFile(filepath.Join(log, "quarantine.jsonl"))
	require.True(t, err == nil && len(text) == 0 || os.IsNotExist(err), "%s", text)
	curve, err := os.ReadFile(filepath.Join(log, "loss.svg"))
	require.NoError(t, err)
	require.NotContains(t, string(curve), "nats")
	require.Contains(t, string(curve), "loss of a number")
}

// TestPicturesAreChecked: config check says what a run of diffusion lacks, each with its key, before anything
// is read; sizes that are no whole patches end the run's start.
func TestPicturesAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(wanOf12), 0o644))
	load := func(section string) error {
		text := fmt.Sprintf("model: {file: %q}\ndata: {paths: [%q], seq_len: 16}\ndiffusion: {%s}\n",
			filepath.Join(dir, "model.yaml"), filepath.Join(dir, "a.tar"), section)
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Files: true})
		if err != nil {
			return err
		}
		r, err := Open(cfg)
		if err == nil {
			r.Close()
		}
		return err
	}
	err := load("")
	for _, key := range []string{"diffusion.sizes", "diffusion.autoencoder", "diffusion.text_encoder"} {
		require.ErrorContains(t, err, key+": is not given")
	}
	require.ErrorContains(t, load("sizes: [8x8], autoencoder: pixels, text_encoder: "+dir),
		"has no config.json")
	require.ErrorContains(t,
		load("sizes: [8x8], autoencoder: pixels, text_encoder: none, text_encoder_2: "+dir),
		"diffusion.text_encoder_2")
	require.ErrorContains(t, load("sizes: [9x8], autoencoder: pixels, text_encoder: none"),
		"no whole patches")
	require.NoError(t, load("sizes: [8x8], autoencoder: pixels, text_encoder: none"))
}
