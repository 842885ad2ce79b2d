package all

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// piPublished is config.json of lerobot/pi05_base, as its config class writes one.
const piPublished = `{"type": "pi05", "n_obs_steps": 1, "input_features": {
	"observation.images.base_0_rgb": {"type": "VISUAL", "shape": [3, 224, 224]},
	"observation.images.left_wrist_0_rgb": {"type": "VISUAL", "shape": [3, 224, 224]},
	"observation.images.right_wrist_0_rgb": {"type": "VISUAL", "shape": [3, 224, 224]},
	"observation.state": {"type": "STATE", "shape": [32]}},
	"output_features": {"action": {"type": "ACTION", "shape": [32]}}, "device": "cpu", "use_amp": false,
	"push_to_hub": true, "repo_id": null, "private": null, "tags": null, "license": null,
	"paligemma_variant": "gemma_2b", "action_expert_variant": "gemma_300m", "dtype": "float32", "chunk_size": 50,
	"n_action_steps": 50, "max_action_dim": 32, "max_state_dim": 32, "num_inference_steps": 10,
	"time_sampling_beta_alpha": 1.5, "time_sampling_beta_beta": 1.0, "time_sampling_scale": 0.999,
	"time_sampling_offset": 0.001, "min_period": 0.004, "max_period": 4.0, "image_resolution": [224, 224],
	"empty_cameras": 0, "tokenizer_max_length": 200, "normalization_mapping": {"VISUAL": "IDENTITY",
	"STATE": "QUANTILES", "ACTION": "QUANTILES"}, "gradient_checkpointing": false, "compile_model": false,
	"compile_mode": "max-autotune", "freeze_vision_encoder": false, "train_expert_only": false,
	"optimizer_lr": 2.5e-05, "optimizer_betas": [0.9, 0.95], "optimizer_eps": 1e-08,
	"optimizer_weight_decay": 0.01, "optimizer_grad_clip_norm": 1.0, "scheduler_warmup_steps": 1000,
	"scheduler_decay_steps": 30000, "scheduler_decay_lr": 2.5e-06}`

// TestPiFile: lerobot's config.json of Pi0.5 is read as the published size, written with its keys alone, and read
// again; what it has otherwise is refused.
func TestPiFile(t *testing.T) {
	read := func(text string) (configs.Model, error) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o644))
		return configs.ReadModel(dir)
	}
	c, err := read(piPublished)
	require.NoError(t, err)
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte("model: {name: pi/0.5}\n"),
		Args: []string{"data.paths=[/nowhere]", "data.tokenizer=/nowhere"}})
	require.NoError(t, err)
	text := c.HFConfig("float32")
	require.JSONEq(t, string(cfg.Model.HFConfig("float32")), string(text))
	var theirs, ours map[string]any
	require.NoError(t, json.Unmarshal([]byte(piPublished), &theirs))
	require.NoError(t, json.Unmarshal(text, &ours))
	delete(ours, "use_visual_memory") // of later files
	delete(ours, "use_proprioceptive_memory")
	delete(ours, "use_relative_actions")
	delete(ours, "rtc_training_max_delay")
	for key, v := range ours {
		require.Equal(t, theirs[key], v, key)
	}
	again, err := read(string(text))
	require.NoError(t, err)
	require.JSONEq(t, string(text), string(again.HFConfig("float32")))
	theirs["use_proprioceptive_memory"] = true
	b, err := json.Marshal(theirs)
	require.NoError(t, err)
	_, err = read(string(b))
	require.ErrorContains(t, err, "use_proprioceptive_memory: true, only false can be trained")
}
