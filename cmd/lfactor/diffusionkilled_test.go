package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
)

// diffusionRun makes a folder with a run of diffusion of 24 steps on the latents of a small autoencoder,
// drawn from their distribution and kept, with lost captions and an average of weights.
func diffusionRun(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range 40 {
		img := image.NewRGBA(image.Rect(0, 0, 16, 16))
		for p := range 256 {
			img.Set(p%16, p/16, color.RGBA{uint8(6 * i), uint8(p), uint8(40 * (i % 5)), 255})
		}
		var pix bytes.Buffer
		require.NoError(t, png.Encode(&pix, img))
		for name, text := range map[string][]byte{"png": pix.Bytes(), "txt": []byte("a square")} {
			require.NoError(t, w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%03d.%s", i, name), Mode: 0o644,
				Size: int64(len(text))}))
			_, err := w.Write(text)
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.tar"), b.Bytes(), 0o644))
	vae, err := filepath.Abs("../../stages/family/autoencoders/testdata/kl")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(`model_type: WanTransformer3DModel
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
`), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(fmt.Sprintf(`
model: {file: model.yaml}
data: {paths: [a.tar], seq_len: 32, split: [1, 0, 0]}
diffusion: {autoencoder: %q, text_encoder: none, sizes: [16x16], times: logit_normal}
train: {steps: 24, global_batch: 4, micro_batch: 2}
optimizer: {lr: 1.0e-3, ema: 0.9}
plan: {pp: 2}
checkpoint: {dir: ckpt, interval: 2, keep: 2}
log: {dir: run}
`, vae)), 0o644))
	return dir
}

// TestDiffusionKilled: a run of diffusion that is killed with SIGKILL at random moments, and started again
// each time by the same command, ends with the weights, moments, averages and ledger of one that was left
// alone: noise, levels and draws of latents are counted from the samples.
func TestDiffusionKilled(t *testing.T) {
	t.Parallel()
	n := 4
	if *long {
		n = 20
	} else {
		t.Log("4 of 20 kills; all of them with -long")
	}
	want := diffusionRun(t)
	code, out := runIn(t, want, nil, "train", "run.yaml", "-q")
	require.Zero(t, code, out)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(want)))
	for _, sub := range []string{"ckpt", "run"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, sub)))
	}
	died := 0
	for _, k := range kills(n, 3) {
		fault := fmt.Sprintf("%s=kill=%s@%d+%d", run.EnvFault, k.job, k.step, k.micros)
		code, out := runIn(t, dir, []string{fault}, "train", "run.yaml", "-q")
		if code != 0 {
			require.Equal(t, -1, code, out)
			died++
		}
	}
	require.GreaterOrEqual(t, died, n*3/4)
	code, out = runIn(t, dir, nil, "train", "run.yaml", "-q")
	require.Zero(t, code, out)
	require.Equal(t, stateOf(t, want, 24), stateOf(t, dir, 24))
}
