package configs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTowerFaults: what a tower cannot stand before, or be, is said with its place and what to do.
func TestTowerFaults(t *testing.T) {
	base := `model_type: vlm
text_model_type: llama
hidden_size: 32
num_hidden_layers: 3
num_attention_heads: 4
intermediate_size: 48
vocab_size: 120
vision: {kind: siglip, depth: 2, hidden_size: 16, intermediate_size: 24, num_heads: 2, patch_size: 4, merge: 2, image_size: 18}
`
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{"text_model_type: llama\n", "", "text_model_type: is not given"},
		{"model_type: vlm\ntext_model_type: llama", "model_type: llama",
			"llama has no vision tower, but vision.kind = siglip; try model_type: vlm"},
		{"model_type: vlm\ntext_model_type: llama",
			"model_type: llava_onevision1_5\ntext_model_type: qwen3\nqk_norm: true",
			"vision.kind: siglip, but llava_onevision1_5 has rice"},
		{"model_type: vlm\ntext_model_type: llama", "model_type: internvl\ntext_model_type: llama\n",
			"vision.kind: siglip, but internvl has internvl"},
		{"model_type: vlm\ntext_model_type: llama\n", "model_type: qwen2_vl\ntext_model_type: llama\n",
			"vision.kind: siglip, but qwen2_vl has qwen2_vl"},
		{"model_type: vlm\ntext_model_type: llama",
			"model_type: qwen2_vl\nattention_bias: true\ntext_model_type: qwen3\nqk_norm: true",
			"vision.kind: siglip, but qwen2_vl"},
		{"kind: siglip,", "kind: rice, projector: mlp,", ""},
		{"image_size: 18", "image_size: 3",
			"vision.merge: image_size / patch_size = 3/4 = 0 is not a multiple of 2"},
		{"merge: 2", "merge: 3", "vision.merge: image_size / patch_size = 18/4 = 4 is not a multiple of 3"},
		{", image_size: 18", "", "vision.image_size: is not given"},
		{"kind: siglip", "kind: qwen3_vl, num_position_embeddings: 24",
			"vision.num_position_embeddings: 24 is not a square"},
		{"kind: siglip", "kind: dino", "want one of clip, "},
		{"kind: siglip", "kind: siglip, vision_feature_layer: -3",
			"vision.vision_feature_layer: -3, but the tower has 2 layers"},
		{"kind: siglip", "kind: siglip, vision_feature_layer: 3",
			"vision.vision_feature_layer: 3, but the tower has 2 layers"},
		{"model_type: vlm", "model_type: llava", "vision.merge: 2, but llava has 1"},
		{"vision: {kind: siglip", "vision: {kind: ''", "vision.kind"},
	} {
		file := filepath.Join(t.TempDir(), "model.yaml")
		require.Contains(t, base, c.old)
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(base, c.old, c.new, 1)), 0o644))
		_, err := ReadModel(file)
		if c.want == "" {
			require.NoError(t, err, c.new)
			continue
		}
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, "model.yaml")
	}
}

// TestOwnConfigs: a config.json that is written has transformers' keys, or ours for a pair of one's own, and
// no empty ones.
func TestOwnConfigs(t *testing.T) {
	for dir, want := range map[string][]string{
		"llava-onevision1.5": {`"model_type": "llava_onevision1_5"`,
			`"LlavaOnevision1_5ForConditionalGeneration"`, `"in_channels": 3`, `"out_hidden_size": 32`,
			`"spatial_merge_size": 2`},
		"llava-clip": {`"model_type": "llava"`, `"LlavaForConditionalGeneration"`,
			`"model_type": "clip_vision_model"`, `"num_hidden_layers": 3`, `"image_token_index": 116`,
			`"vision_feature_layer": -2`,
			`"vision_feature_select_strategy": "default"`, `"model_type": "llama"`, `"image_seq_length": 16`},
		"llava-siglip": {`"model_type": "siglip_vision_model"`, `"vision_use_head": true`,
			`"vision_feature_select_strategy": "full"`, `"model_type": "qwen2"`},
		"llava-dinov2": {`"model_type": "dinov2"`, `"mlp_ratio": 2`, `"layerscale_value": 0.5`,
			`"qkv_bias": true`, `"vision_feature_select_strategy": "default"`},
		"gemma3-vision": {`"model_type": "gemma3"`, `"Gemma3ForConditionalGeneration"`, `"boi_token_index": 118`,
			`"eoi_token_index": 119`, `"image_token_index": 116`, `"mm_tokens_per_image": 4`,
			`"model_type": "siglip_vision_model"`, `"vision_use_head": false`, `"model_type": "gemma3_text"`,
			`"sliding_window": 6`},
		"siglip-llama": {`"model_type": "vlm"`, `"kind": "siglip"`, `"merge": 1`, `"projector": "mlp"`,
			`"model_type": "llama"`},
	} {
		m, err := ReadModel("../stages/family/testdata/" + dir)
		require.NoError(t, err)
		if m.ModelType != "vlm" {
			m.Architectures = nil
			m.complete() // the published file names the class of its own code
		}
		text := string(m.HFConfig("float32"))
		for _, w := range want {
			require.Contains(t, text, w)
		}
		require.NotContains(t, text, `"architectures": null`)
	}
}

// TestGemmaImages: features and marks that cannot be are refused by their keys, and what the file leaves out
// is what transformers takes.
func TestGemmaImages(t *testing.T) {
	text := `"text_config": {"model_type": "gemma3_text", "hidden_size": 8, "num_hidden_layers": 1}`
	vision := `"vision_config": {"model_type": "siglip_vision_model", "image_size": 896, "patch_size": 14}`
	for more, want := range map[string]string{
		``: "", `"mm_tokens_per_image": 60`: "mm_tokens_per_image: 60, want a square number",
		`"mm_tokens_per_image": 9`: "whose root divides the 64 patches",
		`"eoi_token_index": 7`:     "eoi_token_index: 7, only the token behind boi_token_index, 256000",
		`"boi_token_index": "x"`:   `boi_token_index: "x", want an integer`,
	} {
		dir := t.TempDir()
		if more != "" {
			more = ", " + more
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"),
			[]byte(`{"model_type": "gemma3", `+text+", "+vision+more+`}`), 0o600))
		m, err := ReadModel(dir)
		if want != "" {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []any{"siglip", "gemma3", 4, 262144, 255999, 768},
			[]any{m.Vision.Kind, m.Vision.Projector, m.Vision.Merge, m.Vision.ImageToken,
				m.Vision.StartToken,
				m.Vision.Hidden})
	}
}

// TestInternChat reads the config.json that InternVL's own code publishes, and refuses what joins patches otherwise.
func TestInternChat(t *testing.T) {
	text := `{"model_type": "internvl_chat", "architectures": ["InternVLChatModel"], "downsample_ratio": 0.5, "force_image_size": 448, "ps_version": "v2", "select_layer": -1,
 "template": "internvl2_5", "llm_config": {"model_type": "internlm2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
 "num_key_value_heads": 8, "vocab_size": 92553, "rms_norm_eps": 1e-05, "rope_theta": 1000000, "bias": false, "rope_scaling": {"factor": 2.0, "type": "dynamic"}, "max_position_embeddings": 32768},
 "vision_config": {"model_type": "intern_vit_6b", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096, "image_size": 448, "patch_size": 14,
 "qkv_bias": true, "qk_normalization": false, "initializer_factor": 1.0, "norm_type": "layer_norm", "layer_norm_eps": 1e-06, "hidden_act": "gelu", "num_channels": 3}}`
	dir := t.TempDir()
	read := func(text string) (Model, error) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o644))
		return ReadModel(dir)
	}
	m, err := read(text)
	require.NoError(t, err)
	require.Equal(t, []any{"internvl", "internlm2", 32, 24, 16, 448, 2, true, "false", "1"},
		[]any{m.ModelType, m.Text, m.Layers, m.Vision.Depth, m.Vision.Heads, m.Vision.ImageSize,
			m.Vision.Merge,
			m.Vision.QKVBias, value(m, "vision.use_qk_norm"), value(m, "vision.layer_scale_init_value")})
	_, err = read(strings.Replace(text, `"v2"`, `"v1"`, 1))
	require.ErrorContains(t, err, `ps_version: "v1", only "v2" can be trained`)
}
