package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/demo"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// TestVisionLlava trains a small LLaVA on images that CLIP's processor prepares, exports it, and goes on
// from the export: the layer that features do not pass is there, and as it was drawn.
func TestVisionLlava(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	_, err := demo.WriteScenes(in("shards"), 160)
	require.NoError(t, err)
	ids, err := demo.SceneTokenizer(in("tokenizer"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(in("tokenizer/preprocessor_config.json"),
		[]byte(`{"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 40}, "crop_size": {"height": 36, "width": 36}}`), 0o644))
	data := fmt.Sprintf(`data: {kind: media, paths: [%q], tokenizer: %q, seq_len: 256, sample_type: chat_mix}
train: {steps: 12, global_batch: 8, micro_batch: 2, loss_average: token}
optimizer: {lr: 2.0e-3}
plan: {threads: 1, dp: 2, encoder: {over: first}}
log: {dir: %q}
`, in("shards/scenes-{00..03}.tar"), in("tokenizer"), in("run"))
	fresh := fmt.Sprintf(`model:
  name: llava/1.5-7b
  init: random
  overrides: {hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16, intermediate_size: 128, vocab_size: %d, initializer_range: 0.1,
    vision: {depth: 3, hidden_size: 32, intermediate_size: 64, num_heads: 4, patch_size: 6, image_size: 36, image_token_id: %d}}
checkpoint: {dir: %q, save_hf: true}
`, ids["vocab"], ids["<|image_pad|>"], in("checkpoints"))
	cfg, err := configs.Load(configs.Request{File: "test", Text: []byte(fresh + data)})
	require.NoError(t, err)
	require.NoError(t, run.Train(context.Background(), cfg, run.Options{}))
	first := metrics(t, dir)
	require.Len(t, first, 12)
	require.Less(t, first[11].Loss, first[0].Loss-0.5)
	weights := in("checkpoints/release_hf_weights")
	src, err := checkpoint.OpenDir(weights)
	require.NoError(t, err)
	defer src.Close()
	kept := make([]byte, 32*32*4)
	require.NoError(t, src.ReadInto("vision_tower.encoder.layers.2.self_attn.q_proj.weight", 0,
		int64(len(kept)), kept))
	m, err := family.Build(cfg.Model, 256)
	require.NoError(t, err)
	for _, p := range m.Params(nil) {
		if p.Name == "visual.blocks.2.attn.q_proj.weight" {
			drawn := make([]float32, 32*32)
			m.Init(uint64(cfg.Run.Train.Seed), p, family.Region{To: 32}, drawn)
			raw := make([]byte, len(kept))
			tensor.Narrow(tensor.F32, drawn, raw)
			require.Equal(t, raw, kept)
		}
	}
	require.NoError(t, os.RemoveAll(in("run")))
	cfg, err = configs.Load(configs.Request{File: "test",
		Text: []byte(fmt.Sprintf("model: {path: %q}\n", weights) + data), Args: []string{"train.steps=1",
			"data.processor=" + in("tokenizer")}})
	require.NoError(t, err)
	require.NoError(t, run.Train(context.Background(), cfg, run.Options{}))
	require.Less(t, metrics(t, dir)[0].Loss, (first[0].Loss+first[11].Loss)/2)
}
