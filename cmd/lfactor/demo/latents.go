package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/latent"
)

// imageLatents is a small autoencoder of Wan's kind, which takes patches of 4×4 pixels for one place: with no
// convolution on all pixels it learns in seconds. Mean and deviation of its channels are measured when it has
// learnt.
const imageLatents = `{"_class_name": "AutoencoderKLWan", "base_dim": 48, "decoder_base_dim": 48, "z_dim": 8, "dim_mult": [1],
 "num_res_blocks": 1, "attn_scales": [], "temperal_downsample": [], "is_residual": false, "in_channels": 48, "out_channels": 48,
 "patch_size": 4, "scale_factor_spatial": 4, "scale_factor_temporal": 1,
 "latents_mean": [0, 0, 0, 0, 0, 0, 0, 0], "latents_std": [1, 1, 1, 1, 1, 1, 1, 1]}
`

// latentsConfig is the run file of its training.
const latentsConfig = `
model: {path: %q, init: random}
data: {kind: media, paths: [%q], seq_len: 1024, split: [1, 0, 0]}
diffusion: {sizes: [32x32], posterior: mode, kl_weight: 0}
train: {steps: %d, global_batch: 8, micro_batch: 4, log_interval: %d, seed: 5}
optimizer: {lr: 3.0e-3, min_lr: 1.0e-4, beta2: 0.98, weight_decay: 0, clip_grad: 0.1}
schedule: {kind: cosine, warmup_steps: %d}
plan: {dp: 2, threads: 1}
checkpoint: {dir: %q, save_hf: true}
log: {dir: %q}
`

// learnLatents trains the autoencoder on drawn pictures, and puts it into dir/vae as diffusers has it.
func learnLatents(ctx context.Context, dir string, steps int, progress io.Writer) error {
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.MkdirAll(in("autoencoder"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(in("autoencoder/config.json"), []byte(imageLatents), 0o644); err != nil {
		return err
	}
	text := fmt.Sprintf(latentsConfig, in("autoencoder"), in("shards/figures-{00..03}.tar"), steps,
		max(1, steps/5), min(100, steps/4), in("autoencoder/checkpoints"), in("autoencoder/run"))
	cfg, err := configs.Load(configs.Request{File: "demo --image", Text: []byte(text)})
	if err != nil {
		return err
	}
	cfg.Notices = nil
	if err := run.Train(ctx, cfg, run.Options{Progress: progress}); err != nil {
		return err
	}
	if err := os.RemoveAll(in("vae")); err != nil {
		return err
	}
	if err := os.Rename(in("autoencoder/checkpoints/release_hf_weights/vae"), in("vae")); err != nil {
		return err
	}
	return measureLatents(cfg, in("vae"))
}

// measureLatents writes the mean and the deviation of an autoencoder's channels over drawn pictures into its
// config.json: a denoiser learns numbers as wide as its noise.
func measureLatents(cfg *configs.Config, dir string) error {
	b, err := kernels.Open(cfg.Run.Device, kernels.Options{})
	if err != nil {
		return err
	}
	defer kernels.Close(b)
	a, err := latent.Open(dir, b)
	if err != nil {
		return err
	}
	defer a.Close()
	r, all := rand.New(rand.NewPCG(33, 34)), figuresOf(false)
	sum, squares, n := make([]float64, a.Latent), make([]float64, a.Latent), 0.0
	for range 64 {
		mean, _, err := a.Frozen().Encode(figurePlanes(all[r.IntN(len(all))], r), [3]int{1, figureSide,
			figureSide})
		if err != nil {
			return err
		}
		each := len(mean) / a.Latent
		for i, v := range mean {
			sum[i/each] += float64(v)
			squares[i/each] += float64(v) * float64(v)
		}
		n += float64(each)
	}
	for c := range sum {
		sum[c] /= n
		squares[c] = math.Sqrt(max(1e-12, squares[c]/n-sum[c]*sum[c]))
	}
	return rewriteJSON(filepath.Join(dir, "config.json"), map[string]any{"latents_mean": sum,
		"latents_std": squares})
}

// figurePlanes is a drawn picture, [3 1 H W] from -1 to 1.
func figurePlanes(f figures, r *rand.Rand) []float32 {
	p, places := f.draw(r), figureSide*figureSide
	out := make([]float32, 3*places)
	for i := range places {
		for c := range 3 {
			out[c*places+i] = float32(p.Pix[4*i+c])/127.5 - 1
		}
	}
	return out
}

// rewriteJSON sets keys of a file.
func rewriteJSON(path string, keys map[string]any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for k, v := range keys {
		all[k] = v
	}
	if text, err = json.MarshalIndent(all, "", " "); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
