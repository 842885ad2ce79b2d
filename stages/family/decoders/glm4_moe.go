package decoders

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// GLM 4.5: grouped attention of which half of each head turns, some dense layers first, and experts that a
// sigmoid scores and numbers of their own help to choose, as in DeepSeek V3. Checkpoints have a layer more,
// which predicts a further token.
var _ = family.Register(family.Family{ModelType: "glm4_moe", Paper: "2508.06471",
	HF: hf.Family{Class: "Glm4MoeForCausalLM", Score: "sigmoid", Corrected: true, Has: []string{"attention_bias",
		"qk_norm", "partial_rotary_factor", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "n_group",
		"topk_group", "routed_scaling_factor", "n_shared_experts", "first_k_dense_replace", "norm_topk_prob"},
		Alias: map[string]string{"n_routed_experts": "num_experts", "use_qk_norm": "qk_norm"},
		Idle:  []string{"output_router_logits"}, Offered: []string{"num_nextn_predict_layers"},
		Absent: map[string]string{"hidden_size": "4096", "intermediate_size": "10944", "num_hidden_layers": "46",
			"num_attention_heads": "96", "num_key_value_heads": "8", "vocab_size": "151552",
			"max_position_embeddings": "131072", "num_experts": "128", "num_experts_per_tok": "8",
			"moe_intermediate_size": "1408", "n_shared_experts": "1", "first_k_dense_replace": "1",
			"norm_topk_prob": "true", "partial_rotary_factor": "0.5"}}, Spec: func(c configs.Model, s *family.Spec) {
		corrected(s, c)
	}, Source: func(c configs.Model) func(string) family.Source {
		return family.BehindLast(c, family.EachExpert(c))
	}, Other: func(c configs.Model) func(string) family.Source {
		return family.BehindLast(c, family.FusedExperts(c))
	}})

// Solar Open: GLM 4.5 without dense layers and norms of queries and keys, whose heads turn as a whole.
var _ = family.Register(family.Family{ModelType: "solar_open", HF: alwaysMixed(hf.Family{
	Class: "SolarOpenForCausalLM", Score: "sigmoid", Corrected: true, Has: append([]string{"attention_bias"},
		correctedKeys...),
	Alias: map[string]string{"n_routed_experts": "num_experts"}, Idle: []string{"output_router_logits"},
	Absent: map[string]string{"hidden_size": "4096", "num_hidden_layers": "48", "num_attention_heads": "64",
		"num_key_value_heads": "8", "head_dim": "128", "vocab_size": "196608", "max_position_embeddings": "131072",
		"rms_norm_eps": "1e-5", "rope_theta": "1000000", "num_experts": "128", "num_experts_per_tok": "8",
		"moe_intermediate_size": "1280", "n_shared_experts": "1", "norm_topk_prob": "true"}}),
	Spec: func(c configs.Model, s *family.Spec) { corrected(s, c) }, Source: family.EachExpert,
	Other: family.FusedExperts})

// dots.llm1: Qwen 3's attention, and experts as in DeepSeek V3 behind dense layers.
var _ = family.Register(family.Family{ModelType: "dots1", Paper: "2506.05767", HF: windowsFrom(62, hf.Family{
	Class: "Dots1ForCausalLM", OutBias: true, Score: "sigmoid", Corrected: true, Fixed: map[string]string{
		"qk_norm": "true"}, Omit: []string{"qk_norm"}, Has: slices.Concat(correctedKeys, []string{"attention_bias",
		"first_k_dense_replace"}), Alias: map[string]string{"n_routed_experts": "num_experts"},
	Idle: []string{"output_router_logits", "scoring_func", "topk_method", "moe_layer_freq"},
	Absent: map[string]string{"hidden_size": "4608", "intermediate_size": "10944", "num_hidden_layers": "62",
		"num_attention_heads": "32", "num_key_value_heads": "32", "vocab_size": "152064",
		"max_position_embeddings": "2048", "rms_norm_eps": "1e-6", "moe_intermediate_size": "1408"}}),
	Spec: func(c configs.Model, s *family.Spec) { corrected(s, c) }, Source: family.EachExpert,
	Other: family.FusedExperts})

// correctedKeys are those of experts that numbers of their own help to choose.
var correctedKeys = []string{"num_experts", "num_experts_per_tok", "moe_intermediate_size", "n_group", "topk_group",
	"routed_scaling_factor", "n_shared_experts", "norm_topk_prob"}

// EXAONE with experts: EXAONE 4's attention behind norms, and experts as in DeepSeek V3 in layers that are named.
var _ = family.Register(family.Family{ModelType: "exaone_moe", HF: denseOrSparse(-1, hf.Family{
	Class: "ExaoneMoeForCausalLM", Score: "sigmoid", Corrected: true, Has: slices.Concat(correctedKeys,
		[]string{"first_k_dense_replace", "mlp_layer_types", "sliding_window", "layer_types"}), Fixed: map[string]string{
		"qk_norm": "true"}, Omit: []string{"qk_norm", "attention_bias"}, Null: []string{"sliding_window"},
	Alias: map[string]string{"num_shared_experts": "n_shared_experts"}, Idle: []string{"output_router_logits"},
	Absent: map[string]string{"hidden_size": "4096", "intermediate_size": "16384", "num_hidden_layers": "32",
		"num_attention_heads": "32", "num_key_value_heads": "32", "vocab_size": "102400",
		"max_position_embeddings": "2048", "rms_norm_eps": "1e-5", "sliding_window": "4096", "num_experts": "64",
		"num_experts_per_tok": "8", "moe_intermediate_size": "1024", "n_shared_experts": "1",
		"first_k_dense_replace": "1", "norm_topk_prob": "true", "routed_scaling_factor": "2.5",
		"bos_token_id": "1", "eos_token_id": "53"}, Own: []hf.Own{hf.Keys(exaone4File{Layers: 32}, exaone4File.enter)}}),
	Spec: func(c configs.Model, s *family.Spec) {
		corrected(s, c)
		if c.SlidingWindow > 0 {
			s.Alternate(4, c.LayerTypes)
			s.NoRope = func(layer int) bool { return s.Mixers[layer] == "full_attention" }
		}
	}, Source: family.EachExpert, Other: family.FusedExperts})

// GLM 4.7 Flash: DeepSeek V3 of which the first layer is dense, or those that mlp_layer_types names.
var _ = family.Register(glmLite())

// glmLite describes it. first_k_dense_replace of its files is passed over, as transformers does.
func glmLite() family.Family {
	f := deepseek3("glm4_moe_lite", "2508.06471", "")
	f.Loong = nil
	f.HF.Class, f.HF.Has = "Glm4MoeLiteForCausalLM", append(f.HF.Has, "mlp_layer_types")
	maps.Copy(f.HF.Absent, map[string]string{"hidden_size": "2048", "intermediate_size": "10240",
		"num_hidden_layers": "47", "num_attention_heads": "20", "vocab_size": "154880",
		"max_position_embeddings": "202752", "q_lora_rank": "768", "qk_nope_head_dim": "192", "v_head_dim": "256",
		"n_group": "1", "topk_group": "1", "rms_norm_eps": "1e-5", "num_experts": "64", "num_experts_per_tok": "4",
		"moe_intermediate_size": "1536", "routed_scaling_factor": "1.8"})
	f.HF = denseOrSparse(1, f.HF)
	return f
}

// denseOrSparse reads mlp_layer_types in transformers' words. Without them so many first layers are dense, or as many
// as the file says if first is below 0.
func denseOrSparse(first int, f hf.Family) hf.Family {
	const list, number = "mlp_layer_types", "first_k_dense_replace"
	f.Prepare = func(raw hf.Raw) {
		if first >= 0 {
			raw[number] = json.RawMessage(strconv.Itoa(first))
		}
		var kinds []string
		if json.Unmarshal(raw[list], &kinds) != nil || len(kinds) == 0 {
			return
		}
		for i, kind := range kinds {
			kinds[i] = cmp.Or(map[string]string{"dense": "gated", "sparse": "experts"}[kind], kind)
		}
		raw[list] = json.RawMessage(family.JSONOf(kinds))
	}
	f.Write = func(m hf.Values, out map[string]any) {
		kinds, _ := m[list].([]string)
		words := make([]string, m.Int("num_hidden_layers"))
		for i := range words {
			words[i] = "sparse"
			if len(kinds) == 0 && i < m.Int(number) || len(kinds) > 0 && kinds[i] == "gated" {
				words[i] = "dense"
			}
		}
		out[list] = words
	}
	return f
}
