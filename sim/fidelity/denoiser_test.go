package fidelity

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestDenoiserAtScale: encoders that are live take each device's share of the samples, those of their own
// take as many devices as keep up, and the shares of devices' time add up.
func TestDenoiserAtScale(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, "config.json"), []byte(text), 0o600))
		return filepath.Join(dir, name)
	}
	vae, text := write("vae", `{"_class_name": "AutoencoderKLWan"}`), write("text", `{"model_type": "umt5", "architectures":
		["UMT5EncoderModel"], "vocab_size": 1000, "d_model": 4096, "d_kv": 64, "num_heads": 64, "d_ff": 1024,
		"num_layers": 4}`)
	load := func(model string, more ...string) *configs.Config {
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(fmt.Sprintf(`model: {name: %s}
data: {paths: [none], tokenizer: none, seq_len: 1560}
train: {global_batch: 16, precision: bf16}
plan: {cp: 2, zero: 3}
`, model)), Args: more})
		require.NoError(t, err)
		return cfg
	}
	cfg := load("wan/2.1-t2v-1.3b", "diffusion.sizes=[1x480x832]", "diffusion.autoencoder="+vae,
		"diffusion.text_encoder="+text)
	all, err := DenoiserAtScale(cfg, "h100", []int{8})
	require.NoError(t, err)
	require.Len(t, all, 3)
	cached, live, apart := all[0], all[1], all[2]
	require.Equal(t, []string{Cached, Live, Disaggregated}, []string{cached.Layout, live.Layout,
		apart.Layout})
	require.Positive(t, cached.VAEEach)
	require.Positive(t, cached.TextEach)
	require.InDelta(t, cached.Step+2*(live.VAEEach+live.TextEach), live.Step, 1e-9) // 4 samples on 2 devices
	require.Greater(t, cached.Samples, live.Samples)
	require.Equal(t, 2, apart.Encoding)
	for _, l := range all {
		require.InDelta(t, 1, l.VAE+l.Text+l.Denoiser+l.Rest, 1e-9)
		require.Equal(t, 8, l.Devices)
	}
	require.InDelta(t, 16*live.VAEEach/(8*live.Step), live.VAE, 1e-12)
	svg := DenoiserSVG(all)
	for _, word := range []string{"<svg", "8 devices, cached", "disaggregated (2)", "waiting"} {
		require.Contains(t, svg, word)
	}

	pixels := load("wan/2.1-t2v-1.3b", "diffusion.sizes=[1x32x32]", "diffusion.autoencoder=pixels",
		"diffusion.text_encoder=none", "data.seq_len=256")
	all, err = DenoiserAtScale(pixels, "h100", []int{4})
	require.NoError(t, err)
	require.Zero(t, all[0].VAEEach+all[0].TextEach)
	_, err = DenoiserAtScale(cfg, "h100", []int{7})
	require.ErrorContains(t, err, "7 devices are no replicas of 2")
	_, err = DenoiserAtScale(load("qwen3-0.6b"), "h100", []int{8})
	require.ErrorContains(t, err, "is no model of diffusion")
}
