package configs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// deepseekV3 is the config.json of deepseek-ai/DeepSeek-V3.
const deepseekV3 = `{"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
"auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "aux_loss_alpha": 0.001,
	"bos_token_id": 0, "eos_token_id": 1, "ep_size": 1,
"first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168, "initializer_range": 0.02,
	"intermediate_size": 18432, "kv_lora_rank": 512,
"max_position_embeddings": 163840, "model_type": "deepseek_v3", "moe_intermediate_size": 2048,
	"moe_layer_freq": 1, "n_group": 8,
"n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
	"num_experts_per_tok": 8,
"num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "pretraining_tp": 1,
	"q_lora_rank": 1536,
"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "quantization_config": {"activation_scheme": "dynamic",
	"fmt": "e4m3", "quant_method": "fp8",
"weight_block_size": [128, 128]}, "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1,
	"factor": 40, "mscale": 1.0,
"mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
	"routed_scaling_factor": 2.5,
"scoring_func": "sigmoid", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 4,
	"topk_method": "noaux_tc", "torch_dtype": "bfloat16",
"transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128, "vocab_size": 129280}`

// TestDeepSeekConfig reads the published config.json of DeepSeek V3: its weights in FP8 can be read and its
// layer for a further token is passed over, which notes say; Kimi K2's is read likewise under its own name.
// Weights in a form that cannot be read are refused.
func TestDeepSeekConfig(t *testing.T) {
	load := func(text string) (*Config, error) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o644))
		return Load(Request{Text: []byte("{}"), Args: []string{"model.path=" + dir, "data.paths=[x]",
			"train.steps=1"}})
	}
	cfg, err := load(deepseekV3)
	require.NoError(t, err)
	want, err := Published("deepseek/v3")
	require.NoError(t, err)
	want.Parameters, want.Active, want.Names, want.Source = 0, 0, nil, ""
	require.Equal(t, want, cfg.Model)
	notes := strings.Join(cfg.Notices, "\n")
	require.Contains(t, notes, "num_nextn_predict_layers = 1: those layers are passed over and not trained")
	require.Contains(t, notes, "weights are read from few bits")
	int4 := `{"config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32, "strategy": "group", "symmetric": true, "type": "int"}}},
		"format": "pack-quantized", "quant_method": "compressed-tensors", "ignore": ["lm_head"]}`
	before, after, _ := strings.Cut(deepseekV3, `{"activation_scheme"`)
	_, after, _ = strings.Cut(after, "[128, 128]}")
	cfg, err = load(strings.Replace(before, `"deepseek_v3"`, `"kimi_k2"`, 1) + int4 + after)
	require.NoError(t, err)
	require.Equal(t, "kimi_k2", cfg.Model.ModelType)
	for _, other := range []string{`{"quant_method": "gptq", "bits": 5}`, strings.Replace(int4, `: 4`,
		`: 3`, 1),
		`{"quant_method": "fp8", "weight_block_size": [0, 128]}`, `{"quant_method": "awq", "bits": 4, "version": "gemv"}`,
		`{"quant_method": "compressed-tensors", "format": "marlin-24"}`, `{"quant_method": "hqq"}`} {
		_, err = load(before + other + after)
		require.ErrorContains(t, err, "quantized in a form that is not read")
	}
}
