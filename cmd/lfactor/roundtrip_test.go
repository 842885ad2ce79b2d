package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// roundTrips are families, each with the folder of golden data whose configuration is taken, and changes to that.
var roundTrips = map[string]struct {
	golden string
	change map[string]any
}{
	"dense":      {"qwen3", nil},
	"mixture":    {"qwen3-moe", map[string]any{"mlp_only_layers": []int{}, "num_experts": 6}},
	"latent":     {"deepseek-v3", nil},
	"hybrid":     {"qwen3-next", map[string]any{"mlp_only_layers": []int{}}},
	"qwen2.5-vl": {"qwen2.5-vl", nil},
	"llava":      {"llava-clip", nil},
}

// madeModel writes a Hugging Face directory of random bfloat16 weights, of the golden configuration with 4 layers.
func madeModel(t *testing.T, dir, golden string, change map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "stages", "family", "testdata", golden,
		"config.json"))
	require.NoError(t, err)
	var keys map[string]any
	require.NoError(t, json.Unmarshal(text, &keys))
	inner := keys
	if x, ok := keys["text_config"].(map[string]any); ok {
		inner = x
	}
	inner["num_hidden_layers"] = 4
	if kinds, ok := inner["layer_types"].([]any); ok {
		inner["layer_types"] = append(kinds, kinds...)[:4]
	}
	for k, v := range change {
		inner[k] = v
	}
	text, err = json.Marshal(keys)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
	c, err := configs.ReadModel(dir)
	require.NoError(t, err)
	m, err := family.Build(c, 0)
	require.NoError(t, err)
	bf16 := func(string) string { return "bf16" }
	sink, err := checkpoint.NewWriter(dir, m.HFTensors(bf16), 0)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(4, 4))
	require.NoError(t, m.Export(sink, bf16, func(_ *grad.Param, v []float32) error {
		for i := range v {
			v[i] = 0.6 + rng.Float32()
		}
		return nil
	}))
}

// TestRoundTrips: a Hugging Face directory goes to Megatron's torch_dist, cut for two ranks of tensor and of pipeline
// parallelism with two virtual stages, and of experts, to lfactor's own form, to Megatron's files of ranks, and back,
// and has the same bytes: dense, a mixture, latent attention, linear attention, and two families that see.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	for name, x := range roundTrips {
		dir := t.TempDir()
		madeModel(t, filepath.Join(dir, "hf"), x.golden, x.change)
		do := func(args ...string) {
			t.Helper()
			code, out := runIn(t, dir, nil, append([]string{"ckpt", "convert", "--no-probe"}, args...)...)
			require.Zero(t, code, "%s: %s", name, out)
		}
		grid := []string{"--tp", "2", "--pp", "2", "--vp", "2"}
		if name == "mixture" || name == "latent" || name == "hybrid" {
			grid = append(grid, "--ep", "2")
		}
		do(append(grid, "hf", "dist", "--to", "megatron")...)
		files, err := filepath.Glob(filepath.Join(dir, "dist", "release", "*.distcp"))
		require.NoError(t, err)
		require.Len(t, files, 1<<(len(grid)/2-1), name)
		do("dist", "own", "--to", "lfactor", "--like", "hf")
		do(append(grid, "own", "ranks", "--to", "megatron-ranks")...)
		do("ranks", "back", "--like", "hf")
		want, err := os.ReadFile(filepath.Join(dir, "hf", "model.safetensors"))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(dir, "back", "model.safetensors"))
		require.NoError(t, err)
		require.True(t, string(want) == string(got), name)
	}
}
