package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/demo"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

var ernieExport = flag.String("ernie-export", "",
	"directory to leave TestVisionErnie's export in, for a look at it with transformers")

// TestVisionErnie trains a small ERNIE-4.5-VL on JSON lines with the images that they name, on a plan that cuts layers,
// heads and both sets of experts; the experts for images learn with the others, and a run goes on from the export with
// the loss that it had. What a model with two sets of experts cannot do is refused by its key.
func TestVisionErnie(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	ids, err := demo.SceneTokenizer(in("tokenizer"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(in("tokenizer/preprocessor_config.json"),
		[]byte(`{"image_processor_type": "Ernie4_5_VLMoeImageProcessor"}`), 0o644))
	ernieData(t, dir)
	data := fmt.Sprintf(`data: {kind: media, paths: [%q], tokenizer: %q, seq_len: 128, dataset: multimodal_sharegpt}
train: {steps: 8, global_batch: 4, micro_batch: 2, loss_average: token, seed: 5}
optimizer: {lr: 3.0e-3}
plan: {threads: 1, pp: 2, tp: 2, ep: 2, layers: [2, 1]}
log: {dir: %q}
`, in("data.jsonl"), in("tokenizer"), in("run"))
	fresh := fmt.Sprintf(`model:
  name: ernie/4.5-vl-28b-a3b
  init: random
  overrides: {hidden_size: 64, num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16, intermediate_size: 96, vocab_size: %d, initializer_range: 0.1,
    num_experts: 4, num_experts_per_tok: 2, moe_intermediate_sizes: [48, 24], n_shared_experts: 1, rope_scaling: {rope_type: default, mrope_section: [3, 3, 2]},
    image_expert_token_ids: [%[2]d, %[3]d, %[2]d, %[3]d],
    vision: {depth: 2, hidden_size: 32, intermediate_size: 64, num_heads: 4, image_token_id: %[4]d, video_token_id: %[5]d, vision_start_token_id: %[2]d}}
checkpoint: {dir: %[6]q, save_hf: true}
`, ids["vocab"], ids["<|vision_start|>"], ids["<|vision_end|>"], ids["<|image_pad|>"], ids["<|video_pad|>"],
		in("checkpoints"))
	load := func(model string, more ...string) *configs.Config {
		cfg, err := configs.Load(configs.Request{File: "test", Text: []byte(model + data), Args: more})
		require.NoError(t, err)
		return cfg
	}
	require.NoError(t, run.Train(context.Background(), load(fresh), run.Options{}))
	first := metrics(t, dir)
	require.Len(t, first, 8)
	require.Less(t, first[7].Loss, first[0].Loss-0.5)
	weights := in("checkpoints/release_hf_weights")
	src, err := checkpoint.OpenDir(weights)
	require.NoError(t, err)
	defer src.Close()
	had := map[string]bool{}
	for _, info := range src.Tensors() {
		had[info.Name] = true
	}
	require.True(t, had["model.layers.2.mlp.experts.7.down_proj.weight"] &&
		had["model.layers.1.mlp.gate.weight_1"])
	if *ernieExport != "" {
		require.NoError(t, os.CopyFS(*ernieExport, os.DirFS(weights)))
	}
	require.NoError(t, os.RemoveAll(in("run")))
	again := fmt.Sprintf("model: {path: %q}\n", weights)
	require.NoError(t, run.Train(context.Background(), load(again, "train.steps=1",
		"data.processor="+in("tokenizer"), "plan.pp=1", "plan.layers=[]", "plan.ep=1", "plan.tp=1"),
		run.Options{}))
	require.Less(t, metrics(t, dir)[0].Loss, (first[0].Loss+first[7].Loss)/2)
	for more, why := range map[string]string{"train.balance_every=2": "train.balance_every",
		"train.routing=record": "train.routing"} {
		_, err := configs.Load(configs.Request{File: "test", Text: []byte(fresh + data),
			Args: []string{more}})
		require.ErrorContains(t, err, why)
		require.ErrorContains(t, err, "experts of their own for images")
	}
}

// ernieData writes conversations with the images that they name.
func ernieData(t *testing.T, dir string) {
	r, all := rand.New(rand.NewPCG(5, 6)), demo.Scenes(false)
	var lines []string
	for i := range 48 {
		s := all[r.IntN(len(all))]
		name := fmt.Sprintf("%d.png", i)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), s.Png(r), 0o644))
		line, err := json.Marshal(map[string]any{"images": []string{name}, "messages": []map[string]string{
			{"from": "human", "value": "<image>" + demo.SceneQuestions[0].Text},
			{"from": "gpt", "value": demo.SceneQuestions[0].Answer(s)}}})
		require.NoError(t, err)
		lines = append(lines, string(line))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data.jsonl"), []byte(strings.Join(lines, "\n")),
		0o644))
}
