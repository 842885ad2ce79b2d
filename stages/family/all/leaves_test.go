package all

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/source"
)

// TestLeaves alters each leaf of the config.json of the golden models, in their parts too: the model moves, or the
// file is refused, or a note names the leaf. Those that do nothing are listed in silentLeaves: TestFamilyFuzz and
// TestVisionFuzz of actors/host hold that transformers' logits do not move with them either.
func TestLeaves(t *testing.T) {
	files, err := filepath.Glob("../testdata/*/config.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	counts, silent := map[string]int{}, map[string]string{}
	dir, n := t.TempDir(), 0
	for _, file := range files {
		var c map[string]any
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &c))
		of := filepath.Join(dir, configs.DescriptionFile)
		require.NoError(t, os.RemoveAll(of))
		if own, err := os.ReadFile(filepath.Join(filepath.Dir(file), configs.DescriptionFile)); err == nil {
			require.NoError(t, os.WriteFile(of, own, 0o600))
		}
		base, _, err := leafModel(t, dir, c)
		require.NoError(t, err, file)
		eachLeaf(c, "", func(path string) {
			if n++; !*long && n%13 != 0 {
				return
			}
			m, notes, err := leafModel(t, dir, c)
			switch {
			case err != nil:
				counts["refused"]++
			case !reflect.DeepEqual(m, base):
				counts["moves"]++
			case slices.ContainsFunc(notes, func(s string) bool { return strings.Contains(s, path[strings.LastIndex(path, ".")+1:]) }):
				counts["noted"]++
			default:
				counts["nothing"]++
				name := filepath.Base(filepath.Dir(file))
				if leaf := path[strings.LastIndex(path, ".")+1:]; !silentLeaves[leaf] &&
					!slices.Contains(strings.Fields(silentOf[path]), name) {
					silent[path] += " " + name
				}
			}
		})
	}
	t.Logf("%d leaves of %d files, with -long each, else one of 13: %v", n, len(files), counts)
	for _, k := range slices.Sorted(maps.Keys(silent)) {
		t.Errorf("%s of%s does nothing, and nothing says so", k, silent[k])
	}
}

// leafModel reads a config.json, and what is said of it.
func leafModel(t *testing.T, dir string, c map[string]any) (configs.Model, []string, error) {
	t.Helper()
	text, err := json.Marshal(c)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
	m, err := configs.ReadModel(dir)
	if err != nil {
		return m, nil, err
	}
	run, err := configs.Load(configs.Request{Args: []string{"model.path=" + dir, "model.init=random", "data.paths=x", "data.seq_len=8"}})
	if err != nil {
		return m, nil, err
	}
	var notes []string
	for _, s := range run.Notices {
		notes = append(notes, strings.ReplaceAll(s, dir, ""))
	}
	return m, notes, nil
}

// eachLeaf calls f with each leaf of a mapping altered.
func eachLeaf(at map[string]any, prefix string, f func(path string)) {
	for _, key := range slices.Sorted(maps.Keys(at)) {
		was := at[key]
		if inner, ok := was.(map[string]any); ok {
			eachLeaf(inner, prefix+key+".", f)
			continue
		}
		for _, other := range otherLeaves(was) {
			at[key] = other
			f(prefix + key)
		}
		at[key] = was
	}
}

// otherLeaves are other values of a leaf, the last of another type.
func otherLeaves(v any) []any {
	switch x := v.(type) {
	case bool:
		return []any{!x}
	case float64:
		return []any{2*x + 3}
	case string:
		return []any{x + "x"}
	case []any:
		return []any{append(slices.Clone(x), x...)}
	}
	return []any{3.0} // null
}

// silentLeaves say nothing about the arithmetic of training.
var silentLeaves = source.Set("architectures", "model_type", "dtype", "torch_dtype", "transformers_version", "use_cache",
	"pad_token_id", "eod_token_id", "sep_token_id", "vision_end_token_id", "initializer_range", "initializer_factor",
	"embedding_initializer_range",
	"pretraining_tp", "image_seq_length", "out_features", "out_indices", "stage_names", "reshape_hidden_states",
	"apply_layernorm", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
	"summary_use_proj", "reorder_and_upcast_attn")

// silentOf are leaves that other models read, with the models in which they do nothing.
var silentOf = map[string]string{
	"attn_logit_softcapping":           "gemma3",
	"classifier_dropout":               "gpt-neox",
	"enable_moe_fp32_combine":          "hy-v3", // in float32 there is no difference
	"is_decoder":                       "gpt-neox",
	"mtp_layer_types":                  "mellum",
	"mtp_mlp_layer_types":              "mellum",
	"block_auto_adjust_ff_dim":         "lfm2",
	"head_dim":                         "deepseek-v2 deepseek-v2-lite deepseek-v3 deepseek-v3-halves deepseek-v3.2 glm5 sarvam-mla youtu",
	"layer_types":                      "deepseek-v3.2 glm5",
	"max_window_layers":                "dots1 qwen2 qwen2-moe qwen2-tied qwen2-window qwen3 qwen3-tied",
	"mlp_only_layers":                  "qwen2-moe qwen3-moe-aux",
	"model_max_length":                 "baichuan2",
	"no_rope_layer_interval":           "smollm3",
	"original_max_position_embeddings": "phi3 phi4",
	"output_router_logits": "deepseek-v2 deepseek-v2-lite deepseek-v3 deepseek-v3-halves deepseek-v3.2 dots1 " +
		"exaone-moe glm4-moe glm4-moe-lite glm5 hunyuan-moe hy-v3 sarvam-mla sarvam-moe solar-open",
	"projection_hidden_size":    "kimi-k2.5",
	"projection_layer_norm_eps": "kimi-k2.5",
	"qk_head_dim": "deepseek-v2 deepseek-v2-lite deepseek-v3 deepseek-v3-halves deepseek-v3.2 " +
		"glm4-moe-lite glm5 sarvam-mla youtu",
	"rope_parameters.factor":                           "hunyuan-dense",
	"rope_parameters.original_max_position_embeddings": "phi4-long",
	"rotary_dim":                         "minimax-m2",
	"seq_length":                         "qwen",
	"sliding_window":                     "qwen2 qwen2-moe qwen2-tied qwen3 qwen3-moe qwen3-moe-aux qwen3-tied smollm3",
	"sliding_window_pattern":             "exaone-moe exaone4 exaone4-full",
	"text_config.attn_logit_softcapping": "gemma3-vision",
	"text_config.head_dim":               "kimi-k2.5",
	"text_config.max_window_layers": "internvl2.5 internvl3.5-6b llava-siglip qwen2-vl qwen2.5-vl qwen2.5-vl-gelu " +
		"qwen2.5-vl-tied",
	"text_config.mlp_only_layers":      "internvl3.5-moe qwen3-vl-moe",
	"text_config.output_router_logits": "kimi-k2.5",
	"text_config.qk_head_dim":          "kimi-k2.5",
	"text_config.sliding_window": "internvl2.5 internvl3.5-6b internvl3.5-moe llava-siglip qwen2-vl qwen2.5-vl " +
		"qwen2.5-vl-gelu qwen2.5-vl-tied qwen3-vl-moe",
	"text_config.tie_word_embeddings": "ernie4.5-vl ernie4.5-vl-aux gemma3-vision internvl2.5 internvl2.5-internlm2 " +
		"internvl3.5-6b internvl3.5-moe kimi-k2.5 qwen2.5-vl-tied qwen3-vl qwen3-vl-moe " +
		"qwen3-vl-unsorted qwen3.5-moe-vision qwen3.5-vision siglip-llama",
	"text_config.use_sliding_window": "internvl2.5 internvl3.5-6b internvl3.5-moe llava-siglip qwen2-vl qwen2.5-vl " +
		"qwen2.5-vl-gelu qwen2.5-vl-tied",
	"tie_word_embeddings":       "qwen2.5-vl-tied",
	"use_dynamic_ntk":           "qwen",
	"use_logn_attn":             "qwen",
	"use_sliding_window":        "qwen2 qwen2-tied qwen3 qwen3-moe qwen3-moe-aux qwen3-tied smollm3",
	"vision_config.embed_dim":   "llava-onevision1.5",
	"vision_config.hidden_size": "qwen2-vl",
	"vision_config.out_hidden_size": "qwen2.5-vl qwen2.5-vl-gelu qwen2.5-vl-tied qwen3-vl qwen3-vl-moe qwen3-vl-unsorted " +
		"qwen3.5-moe-vision qwen3.5-vision",
	"vision_config.projection_dim":   "llava-clip llava-clip-granite llava-clip-gpt2",
	"vision_config.text_hidden_size": "llava-onevision1.5",
}
