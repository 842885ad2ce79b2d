package all

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/family"
)

// readText reads a config.json.
func readText(t *testing.T, text string) (configs.Model, error) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600))
	return configs.ReadModel(dir)
}

// TestOwnKeys: keys of a family's own that are ill-typed or out of range are refused at their line, and none
// is passed over; what they mean where they are right, or null, is as in transformers.
func TestOwnKeys(t *testing.T) {
	for _, c := range []struct{ family, line, why string }{
		{"qwen3_next", `"full_attention_interval": "two"`, `full_attention_interval: "two", want an integer`},
		{"qwen3_next", `"full_attention_interval": 0`, "full_attention_interval: 0, want at least 1"},
		{"qwen3_next", `"full_attention_interval": -3`, "full_attention_interval: -3, want at least 1"},
		{"qwen3_next", `"full_attention_interval": 2.5`, "full_attention_interval: 2.5, want an integer"},
		{"qwen3_5_text", `"full_attention_interval": true`, "full_attention_interval: true, want an integer"},
		{"qwen2", `"use_sliding_window": "no"`, `use_sliding_window: "no", want true or false`},
		{"qwen2", `"max_window_layers": -1`, "max_window_layers: -1, want at least 0"},
		{"qwen3_moe", `"use_sliding_window": 1`, "use_sliding_window: 1, want true or false"},
		{"smollm3", `"no_rope_layer_interval": 0`, "no_rope_layer_interval: 0, want at least 1"},
		{"smollm3", `"no_rope_layer_interval": "four"`, `no_rope_layer_interval: "four", want an integer`},
		{"ernie4_5_moe", `"moe_layer_end_index": 1.5`, `model.overrides.moe_layer_end_index: "1.5", want an integer`},
		{"minimax_m2", `"rotary_dim": "half"`, `rotary_dim: "half", want an integer`},
		{"minimax_m2", `"rotary_dim": -4`, "rotary_dim: -4, want at least 1"},
		{"deepseek_v2", `"topk_method": 3`, "topk_method: 3, want a word"},
		{"deepseek_v2", `"topk_method": "best"`, `topk_method: "best" is not known`},
		{"deepseek_v2", `"norm_topk_prob": true`, "norm_topk_prob: true, only false can be trained; transformers'"},
		{"llama", `"partial_rotary_factor": 0.5`, "partial_rotary_factor: 0.5, only 1.0 can be trained; transformers'"},
		{"pi0", `"vlm_config": {"model_type": "paligemma"}`, "vlm_config: sizes in mappings of transformers' own Pi0"},
		{"pi0", `"dit_config": {"model_type": "gemma"}`, "dit_config: sizes in mappings of transformers' own Pi0"},
		{"glm_moe_dsa", `"index_topk_freq": "two"`, `index_topk_freq: "two", want an integer`},
		{"glm_moe_dsa", `"mlp_layer_types": 3`,
			"mlp_layer_types: 3, want a list, each of whose entries is a word"},
	} {
		_, err := readText(t, "{\n\"model_type\": \""+c.family+"\",\n\n"+c.line+"}")
		require.ErrorContains(t, err, "config.json:4: "+c.why, c.line)
	}
	for _, c := range []struct {
		text string
		want []string
	}{
		{`"full_attention_interval": 2`, []string{family.LinearAttention, "full_attention",
			family.LinearAttention, "full_attention"}},
		{`"full_attention_interval": 3, "layer_types": null`, []string{family.LinearAttention,
			family.LinearAttention, "full_attention", family.LinearAttention}},
		{`"full_attention_interval": null`, nil}, // the family's own
	} {
		m, err := readText(t, `{"model_type": "qwen3_next", "num_hidden_layers": 4, `+c.text+`}`)
		require.NoError(t, err)
		require.Equal(t, c.want, m.LayerTypes, c.text)
	}
}

// TestWindowsOfQwen: each class of transformers has windows in layers of its own.
func TestWindowsOfQwen(t *testing.T) {
	const slides, full = "sliding_attention", "full_attention"
	for name, want := range map[string][]string{
		"qwen2":     {full, full, slides, slides},
		"qwen3":     {full, full, slides, slides},
		"qwen2_moe": {slides, full, full, full},
		"qwen3_moe": {slides, slides, slides, slides},
	} {
		text := `{"model_type": "` + name + `", "num_hidden_layers": 4, "sliding_window": 8,
			"max_window_layers": 2, "use_sliding_window": `
		c, err := readText(t, text+`true}`)
		require.NoError(t, err)
		m, err := family.Build(c, 8)
		require.NoError(t, err)
		require.Equal(t, want, m.Spec.Mixers, name)
		require.Equal(t, 8, m.Spec.Window)
		c, err = readText(t, text+`false}`)
		require.NoError(t, err)
		m, err = family.Build(c, 8)
		require.NoError(t, err)
		require.NotContains(t, m.Spec.Mixers, slides)
	}
}

// TestCapOfGemma3: transformers' Gemma 3 leaves scores as they are, whatever attn_logit_softcapping says.
func TestCapOfGemma3(t *testing.T) {
	c, err := readText(t,
		`{"model_type": "gemma3_text", "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}`)
	require.NoError(t, err)
	m, err := family.Build(c, 8)
	require.NoError(t, err)
	require.Equal(t, []float64{0, 30}, []float64{m.Spec.AttnCap, m.Spec.LogitCap})
}

// TestTiedBelow: of a composed model transformers heeds tie_word_embeddings of the top level; some classes
// take that of text_config too, and a family's own code takes its decoder's alone.
func TestTiedBelow(t *testing.T) {
	for _, c := range []struct {
		dir, below string
		tied       [4]bool // by (top, below): (false, false), (false, true), (true, false), (true, true)
	}{
		{"internvl2.5", "text_config", [4]bool{false, false, true, true}},
		{"internvl2.5-internlm2", "llm_config", [4]bool{false, true, false, true}},
		{"qwen2.5-vl", "text_config", [4]bool{false, true, true, true}},
		{"qwen3-vl", "text_config", [4]bool{false, false, true, true}},
		{"llava-clip", "text_config", [4]bool{false, true, true, true}},
	} {
		for i, want := range c.tied {
			text, err := os.ReadFile(filepath.Join("..", "testdata", c.dir, "config.json"))
			require.NoError(t, err)
			var all map[string]any
			require.NoError(t, json.Unmarshal(text, &all))
			inner, ok := all["text_config"].(map[string]any)
			require.True(t, ok, c.dir)
			delete(all, "text_config")
			all[c.below] = inner
			all["tie_word_embeddings"], inner["tie_word_embeddings"] = i >= 2, i%2 == 1
			text, err = json.Marshal(all)
			require.NoError(t, err)
			m, err := readText(t, string(text))
			require.NoError(t, err)
			require.Equal(t, want, m.TieEmbeddings, "%s %d", c.dir, i)
		}
	}
}

// TestSectionsOfText: a decoder that stands alone has the same place on all axes, whatever mrope_section
// says: it wants no data of positions on three.
func TestSectionsOfText(t *testing.T) {
	for _, name := range []string{"qwen3_5_text", "qwen2", "qwen3"} {
		c, err := readText(t, `{"model_type": "`+name+`", "rope_parameters": {"rope_type": "default",
			"rope_theta": 10000.0, "mrope_section": [11, 11, 10], "mrope_interleaved": true}}`)
		require.NoError(t, err)
		m, err := family.Build(c, 8)
		require.NoError(t, err)
		require.Empty(t, m.Spec.Rope.Sections, name)
	}
}

// TestLongPhi: published files of Phi have the length that longrope begins at beside rope_scaling.
func TestLongPhi(t *testing.T) {
	for _, key := range []string{`"rope_scaling": {"type"`,
		`"rope_parameters": {"rope_theta": 10000.0, "rope_type"`} {
		c, err := readText(t, `{"model_type": "phi3", "hidden_size": 48, "num_attention_heads": 4,
			"original_max_position_embeddings": 4096, `+key+`: "longrope",
			"long_factor": [1, 1, 2, 2, 3, 3], "short_factor": [1, 1, 1, 1, 1, 1]}}`)
		require.NoError(t, err)
		require.Equal(t, 4096, c.RopeScaling.OriginalMax)
		require.Len(t, c.RopeScaling.LongFactor, 6)
	}
}

// TestNumbersOfExperts: two numbers of experts must agree, since transformers takes one of them.
func TestNumbersOfExperts(t *testing.T) {
	c, err := readText(t, `{"model_type": "qwen3_moe", "num_local_experts": 16}`)
	require.NoError(t, err)
	require.Equal(t, 16, family.Mixture.Of(c).Experts)
	_, err = readText(t, "{\"model_type\": \"qwen3_moe\", \"num_experts\": 8,\n\"num_local_experts\": 16}")
	require.ErrorContains(t, err, "config.json:2: num_local_experts: 16, but num_experts = 8")
}

// TestBiasesOfFamilies: attention_bias is one of all four projections where transformers has it so, mlp_bias
// of the whole MLP, and an activation that the file names is that of the MLP.
func TestBiasesOfFamilies(t *testing.T) {
	for name, want := range map[string][3]bool{"llama": {true, true, true}, "qwen3": {true, true, false},
		"gemma2": {true, true, false}, "smollm3": {true, true, true}, "qwen3_5_text": {true, true, false},
		"glm4": {true, false, false}} {
		text := `{"model_type": "` + name + `", "attention_bias": true`
		if want[2] {
			text += `, "mlp_bias": true, "hidden_act": "gelu"`
		}
		c, err := readText(t, text+"}")
		require.NoError(t, err, name)
		m, err := family.Build(c, 8)
		require.NoError(t, err, name)
		require.Equal(t, want, [3]bool{m.Spec.QKVBias, m.Spec.OBias, m.Spec.MLPBias}, name)
		if want[2] {
			require.Equal(t, "gelu", m.Spec.Act)
		}
	}
}

// TestSightIsOfComposition: tokens of an image see each other both ways in Gemma 3's own composition alone;
// its decoder behind another tower is causal, as transformers has it there.
func TestSightIsOfComposition(t *testing.T) {
	for composition, sees := range map[string]bool{"vlm": false, "gemma3": true} {
		text := strings.Replace(pair("siglip", "gemma3_text", "mlp", 1), "model_type: vlm",
			"model_type: "+composition, 1)
		text = strings.Replace(text, "qk_norm: false", "qk_norm: true", 1)
		if sees {
			text = strings.Replace(text, "projector: mlp", "projector: gemma3", 1)
		}
		file := filepath.Join(t.TempDir(), "model.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		c, err := configs.ReadModel(file)
		require.NoError(t, err, text)
		m, err := family.Build(c, 16)
		require.NoError(t, err)
		require.Equal(t, sees, m.Spec.Sees != nil, composition)
	}
}
