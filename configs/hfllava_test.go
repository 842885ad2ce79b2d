package configs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// llava7b is the config.json of llava-hf/llava-1.5-7b-hf: what it leaves out are defaults of transformers' classes.
const llava7b = `{
  "architectures": ["LlavaForConditionalGeneration"], "ignore_index": -100, "image_token_index": 32000, "model_type": "llava", "pad_token_id": 32001,
  "projector_hidden_act": "gelu", "text_config": {"_name_or_path": "lmsys/vicuna-7b-v1.5", "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096, "model_type": "llama",
  "rms_norm_eps": 1e-05, "torch_dtype": "float16", "vocab_size": 32064}, "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.36.0.dev0",
  "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "model_type": "clip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14,
  "projection_dim": 768, "vocab_size": 32000}, "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "vocab_size": 32064}`

// TestLlavaConfig reads the published file as the published model, and refuses what would compute something else.
func TestLlavaConfig(t *testing.T) {
	read := func(old, new string) (Model, error) {
		require.Contains(t, llava7b, old)
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"),
			[]byte(strings.Replace(llava7b, old, new, 1)), 0o644))
		return ReadModel(dir)
	}
	m, err := read("", "")
	require.NoError(t, err)
	want, err := Published("llava/1.5-7b")
	require.NoError(t, err)
	want.Parameters, want.Source = 0, ""
	require.Equal(t, want, m)
	m, err = read(`"vision_feature_layer": -2`, `"vision_feature_layer": [-2]`)
	require.NoError(t, err)
	require.Equal(t, want, m, "a list of one layer is that layer")
	for _, c := range []struct{ old, new, want string }{
		{`"vision_feature_layer": -2`, `"vision_feature_layer": [-2, -5]`,
			"vision_feature_layer: [-2,-5], only the output of one layer"},
		{`"vision_feature_layer": -2`, `"vision_feature_layer": 0`, "vision_feature_layer: 0, only"},
		{`"vision_feature_layer": -2`, `"vision_feature_layer": -25`,
			"vision_feature_layer: -25, but the tower has 24 layers"},
		{`"default"`, `"full"`, `vision_feature_select_strategy: "full", only default can be trained with clip_vision_model`},
		{`"clip_vision_model"`, `"siglip_vision_model"`,
			`vision_feature_select_strategy: "default", only full`},
		{`"clip_vision_model"`, `"pixtral"`,
			`vision_config.model_type: "pixtral" is not a tower that can be trained; one of clip_vision_model, dinov2, siglip_vision_model`},
		{`"llama"`, `"mamba"`, `text_config.model_type: "mamba" is not a decoder that can be trained`},
		{`"ignore_index": -100`, `"multimodal_projector_bias": false`,
			"multimodal_projector_bias: false, only true"},
		{`"projection_dim": 768`, `"hidden_act": "swish"`, "hidden_act"},
	} {
		_, err := read(c.old, c.new)
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, "config.json")
	}
}
