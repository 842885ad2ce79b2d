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
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/trained"
)

// clipsOf writes a shard of clips of five frames, in which a square moves, and returns a first frame as
// PNG. What plays ffmpeg passes on the bytes of a file, which are the frames.
func clipsOf(t *testing.T, path string) []byte {
	t.Helper()
	bin := t.TempDir()
	for name, does := range map[string]string{"ffmpeg": `while [ $# -gt 0 ]; do
	case $1 in -frames:v) n=$2;; file:/*) f=${1#file:};; esac; shift; done; head -c $((n*192)) "$f"`,
		"ffprobe": `echo '{"streams": [{"width": 8, "height": 8, "avg_frame_rate": "16/1", "nb_read_packets": "5"}]}'`} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+does+"\n"), 0o755))
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	file, err := os.Create(path)
	require.NoError(t, err)
	w := tar.NewWriter(file)
	add := func(name string, b []byte) {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(b))}))
		_, err := w.Write(b)
		require.NoError(t, err)
	}
	var first bytes.Buffer
	for i := range 8 {
		clip := make([]byte, 5*64*3)
		for f := range 5 {
			img := image.NewRGBA(image.Rect(0, 0, 8, 8))
			for p := range 64 {
				red := uint8(0)
				if p%8 == f && p/8 == i {
					red = 200
				}
				img.Set(p%8, p/8, color.RGBA{red, uint8(2 * i), 0, 255})
				copy(clip[(f*64+p)*3:], img.Pix[4*p:4*p+3])
			}
			if i == 0 && f == 0 {
				require.NoError(t, png.Encode(&first, img))
			}
		}
		add(fmt.Sprintf("%03d.mp4", i), clip)
		add(fmt.Sprintf("%03d.txt", i), []byte("red"))
	}
	require.NoError(t, w.Close())
	require.NoError(t, file.Close())
	return first.Bytes()
}

// givenRun trains a small model of clips and returns its losses and the folder of its checkpoints.
func givenRun(t *testing.T, model, dir string, more ...string) ([]float64, string) {
	t.Helper()
	losses, saved, err := givenTry(t, model, dir, more...)
	require.NoError(t, err)
	return losses, saved
}

func givenTry(t *testing.T, model, dir string, more ...string) (losses []float64, saved string, err error) {
	text := fmt.Sprintf("model: %s\ndata: {paths: [%q], seq_len: 80, split: [1, 0, 0]}\ndiffusion: {autoencoder: "+
		"pixels, sizes: [5x8x8], text_encoder: none, fps: 0, cache: off}\ntrain: {steps: 3, global_batch: 4}\n"+
		"optimizer: {lr: 1.0e-3}\n", model, filepath.Join(dir, "a.tar"))
	out := t.TempDir()
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append([]string{
		"log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" + filepath.Join(out, "saved"),
		"checkpoint.save_hf=true"}, more...)})
	if err == nil {
		err = Train(context.Background(), cfg, Options{Step: func(m Metrics) {
			losses = append(losses,
				m.Loss)
		}})
	}
	return losses, filepath.Join(out, "saved"), err
}

// TestClipsFromImages: a model with channels for given frames, and one that has its first frame among its
// latents, train in one stage and in two with the same losses, and draw clips that begin with an image:
// exactly, where it is among the latents.
func TestClipsFromImages(t *testing.T) {
	dir := t.TempDir()
	first := clipsOf(t, filepath.Join(dir, "a.tar"))
	given := strings.Replace(wanOf12, "in_channels: 3", "in_channels: 10", 1)
	looks := given + "image_dim: 12\nimage_rows: 10\n"
	for name, text := range map[string]string{"given": given, "looks": looks, "first": wanOf12} {
		file := filepath.Join(dir, name+".yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		model := fmt.Sprintf("{file: %q}", file)
		var more []string
		if name == "first" {
			more = append(more, "diffusion.first_frame=0.7")
		}
		if name == "looks" {
			more = append(more, "diffusion.image_encoder=../../stages/texts/testdata/clip-vision")
		}
		one, saved := givenRun(t, model, dir, more...)
		two, _ := givenRun(t, model, dir, append(more, "plan.pp=2", "plan.recompute=full")...)
		require.InEpsilonSlice(t, one, two, 1e-5)

		m, err := trained.Open(saved, "")
		require.NoError(t, err)
		defer m.Close()
		var drawn diffusion.Picture
		draw := func(o diffusion.Drawing) error {
			o.Steps, o.Guidance = 2, 1
			return diffusion.Draw(m, context.Background(), []string{""}, o, func(p diffusion.Picture) error {
				drawn = p
				return nil
			})
		}
		require.NoError(t, draw(diffusion.Drawing{Images: [][]byte{first}}))
		require.Equal(t, [3]int{5, 8, 8}, drawn.Size)
		if name != "first" {
			require.ErrorContains(t, draw(diffusion.Drawing{}), "name it with --image")
			continue
		}
		for i := range 64 {
			want := float32(-1) // black but for the square in the corner
			if i > 0 {
				require.InDelta(t, want, drawn.Pixels[i], 1e-6)
			}
		}
	}
}

// TestTwoExperts: the models of a pipeline with a boundary are trained at their own levels of noise and exported under
// their own names, and drawing takes each where it was trained; the losses of both together are those of no one model.
func TestTwoExperts(t *testing.T) {
	dir := t.TempDir()
	clipsOf(t, filepath.Join(dir, "a.tar"))
	file := filepath.Join(dir, "model.yaml")
	require.NoError(t, os.WriteFile(file, []byte(wanOf12), 0o644))
	_, saved := givenRun(t, fmt.Sprintf("{file: %q}", file), dir)
	whole := filepath.Join(saved, "release_hf_weights")
	require.NoError(t, os.CopyFS(filepath.Join(whole, "transformer_2"),
		os.DirFS(filepath.Join(whole, "transformer"))))
	require.NoError(t, os.WriteFile(filepath.Join(whole, "model_index.json"),
		[]byte(`{"_class_name": "WanPipeline", "boundary_ratio": 0.875}`), 0o644))
	high, _ := givenRun(t, fmt.Sprintf("{path: %q}", whole), dir)
	low, lows := givenRun(t, fmt.Sprintf("{path: %q}", filepath.Join(whole, "transformer_2")), dir)
	require.NotEqual(t, high, low)
	require.DirExists(t, filepath.Join(lows, "release_hf_weights", "transformer_2"))
	same, _ := givenRun(t, fmt.Sprintf("{path: %q}", filepath.Join(whole, "transformer")), dir,
		"diffusion.noise_from=0.875")
	require.Equal(t, high, same)

	draw := func(path, expert string) (diffusion.Picture, error) {
		m, err := trained.Open(path, "")
		require.NoError(t, err)
		defer m.Close()
		var drawn diffusion.Picture
		err = diffusion.Draw(m, context.Background(), []string{""}, diffusion.Drawing{Steps: 6, Guidance: 1,
			Expert: expert,
			Size:   [3]int{5, 8, 8}}, func(p diffusion.Picture) error {
			drawn = p
			return nil
		})
		return drawn, err
	}
	both, err := draw(lows, "")
	require.NoError(t, err)
	turned, err := draw(lows, filepath.Join(whole, "transformer"))
	require.NoError(t, err)
	require.Equal(t, both.Pixels, turned.Pixels)
	alone, err := draw(lows, filepath.Join(lows, "release_hf_weights", "transformer_2"))
	require.NoError(t, err)
	require.NotEqual(t, alone.Pixels, both.Pixels)
	_, err = draw(saved, filepath.Join(whole, "transformer"))
	require.ErrorContains(t, err, "trained at all levels")
}

// TestBothExperts: both models of a pipeline train in one run, from their own weights, under a plan that
// cuts them and sums their gradients over replicas, as by themselves on the same samples; each is exported
// under its own name, and drawing takes each where it was trained. A folder of one model begins both.
func TestBothExperts(t *testing.T) {
	dir := t.TempDir()
	clipsOf(t, filepath.Join(dir, "a.tar"))
	file := filepath.Join(dir, "model.yaml")
	require.NoError(t, os.WriteFile(file, []byte(wanOf12), 0o644))
	_, saved := givenRun(t, fmt.Sprintf("{file: %q}", file), dir)
	whole := filepath.Join(saved, "release_hf_weights")
	other, second := givenRun(t, fmt.Sprintf("{file: %q}", file), dir, "train.seed=3")
	require.NotEmpty(t, other)
	require.NoError(t, os.CopyFS(filepath.Join(whole, "transformer_2"),
		os.DirFS(filepath.Join(second, "release_hf_weights", "transformer"))))
	model := fmt.Sprintf("{path: %q}", whole)
	_, _, err := givenTry(t, fmt.Sprintf("{file: %q}", file), dir, "diffusion.experts=both")
	require.ErrorContains(t, err, "diffusion.boundary: is not given")
	require.NoError(t, os.WriteFile(filepath.Join(whole, "model_index.json"),
		[]byte(`{"_class_name": "WanPipeline", "boundary_ratio": 0.5}`), 0o644))
	_, _, err = givenTry(t, fmt.Sprintf("{path: %q}", filepath.Join(whole, "transformer_2")), dir,
		"diffusion.experts=both")
	require.ErrorContains(t, err, "model.path: is the second of two models")

	one, saved1 := givenRun(t, model, dir, "diffusion.experts=both")
	two, saved2 := givenRun(t, model, dir, "diffusion.experts=both", "plan.pp=2", "plan.dp=2", "plan.zero=2")
	require.InEpsilonSlice(t, one, two, 1e-5)
	index := filepath.Join(whole, "model_index.json")
	require.NoError(t, os.Rename(index, index+".away"))
	single, _ := givenRun(t, fmt.Sprintf("{path: %q}", filepath.Join(whole, "transformer")), dir)
	split, _ := givenRun(t, fmt.Sprintf("{path: %q}", filepath.Join(whole, "transformer")), dir,
		"diffusion.experts=both",
		"diffusion.boundary=0.5")
	require.InEpsilon(t, single[0], split[0], 1e-5, "the folder of one model begins both")
	require.NotEqual(t, single[0], one[0], "the second one begins with weights of its own")
	require.NotEqual(t, single[2], split[2])
	require.NoError(t, os.Rename(index+".away", index))
	for _, s := range []string{"transformer", "transformer_2"} {
		a, err := os.ReadFile(filepath.Join(saved1, "release_hf_weights", s,
			"diffusion_pytorch_model.safetensors"))
		require.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(whole, s, "diffusion_pytorch_model.safetensors"))
		require.NoError(t, err)
		require.Equal(t, len(b), len(a))
		require.NotEqual(t, b, a, "%s has learnt", s)
	}
	_, adapted := givenRun(t, model, dir, "diffusion.experts=both", "lora.rank=2", `lora.targets=["*blocks.0.attn1.to_q", `+
		`"transformer_2.*.0.attn2.to_q"]`)
	names := func(of ...string) (out []string) {
		path := filepath.Join(append([]string{adapted, "release_hf_weights"}, of...)...)
		f, err := checkpoint.OpenFile(filepath.Join(path, "pytorch_lora_weights.safetensors"))
		require.NoError(t, err)
		defer f.Close()
		for _, t := range f.Tensors() {
			out = append(out, t.Name)
		}
		return out
	}
	require.ElementsMatch(t, []string{"transformer.blocks.0.attn1.to_q.lora_A.weight",
		"transformer.blocks.0.attn1.to_q.lora_B.weight"}, names())
	require.ElementsMatch(t, []string{"transformer.blocks.0.attn1.to_q.lora_A.weight",
		"transformer.blocks.0.attn1.to_q.lora_B.weight", "transformer.blocks.0.attn2.to_q.lora_A.weight",
		"transformer.blocks.0.attn2.to_q.lora_B.weight"}, names("transformer_2"))
	m, err := trained.Open(saved2, "")
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, diffusion.Draw(m, context.Background(), []string{""}, diffusion.Drawing{Steps: 6, Guidance: 1,
		Size: [3]int{5, 8, 8}}, func(diffusion.Picture) error { return nil }))
}
