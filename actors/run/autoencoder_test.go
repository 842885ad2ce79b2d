package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestAutoencoderRun: an autoencoder trains on the images of a run, with the same losses in one stage and in
// two; its export is a folder of diffusers, with which a model learns latents; keys that it does not read,
// sizes that it cannot and plans that share nothing out are refused.
func TestAutoencoderRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	file, err := os.ReadFile("../../stages/family/autoencoders/testdata/kl/config.json")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "kl"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kl", "config.json"), file, 0o644))
	load := func(more ...string) (*configs.Config, string, error) {
		out := t.TempDir()
		text := fmt.Sprintf("model: {path: %q, init: random}\ndata: {paths: [%q], seq_len: 64}\ndiffusion: {sizes: [8x8]}\n"+
			"train: {steps: 12, global_batch: 4, micro_batch: 2}\noptimizer: {lr: 3.0e-3}\n",
			filepath.Join(dir, "kl"), filepath.Join(dir, "a.tar"))
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Files: true,
			Args: append([]string{
				"log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" + filepath.Join(out, "saved"),
				"checkpoint.save_hf=true"}, more...)})
		return cfg, filepath.Join(out, "saved", "release_hf_weights", "vae"), err
	}
	train := func(more ...string) (losses []float64, export string) {
		cfg, export, err := load(more...)
		require.NoError(t, err)
		require.NoError(t, Train(context.Background(), cfg, Options{Step: func(m Metrics) {
			losses = append(losses, m.Loss)
		}}))
		return losses, export
	}
	one, export := train()
	require.Less(t, one[11], 0.7*one[0])
	two, _ := train("plan.pp=2")
	require.Equal(t, one, two)
	lines, _ := train("plan.cp=2", "plan.zero=1", "train.micro_batch=1")
	require.InEpsilonSlice(t, one, lines, 1e-5)
	means, _ := train("diffusion.posterior=mode", "diffusion.kl_weight=0")
	require.NotEqual(t, one, means)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(wanOf12), 0o644))
	losses, _ := encodersRun(t, fmt.Sprintf("{file: %q}", filepath.Join(dir, "model.yaml")), dir, "none",
		"diffusion.autoencoder="+export)
	require.Len(t, losses, 4)

	for want, more := range map[string]string{
		"diffusion.sizes: 9x8":             "diffusion.sizes=[9x8]",
		"diffusion.times: an autoencoder":  "diffusion.times=mode",
		"encode_frames: an autoencoder":    "diffusion.encode_frames=1",
		"reads pixels":                     "diffusion.autoencoder=" + export,
		"reads no captions":                "diffusion.text_encoder=" + dir,
		"plan.tp: num_attention_heads":     "plan.tp=2",
		"the autoencoder reads pictures":   "diffusion.sizes=[5x8x8]",
		"diffusion.huber_border: is not r": "diffusion.huber_border=0.2",
	} {
		_, _, err := load(more)
		require.ErrorContains(t, err, want)
	}
	text := fmt.Sprintf("model: {file: %q}\ndata: {paths: [%q], seq_len: 16}\ndiffusion: {autoencoder: pixels, "+
		"sizes: [8x8], text_encoder: none, kl_weight: 1}\n", filepath.Join(dir, "model.yaml"),
		filepath.Join(dir, "a.tar"))
	_, err = configs.Load(configs.Request{File: "run.yaml", Text: []byte(text)})
	require.ErrorContains(t, err, "diffusion.kl_weight: only autoencoders have it")
}
