package decoders

import (
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/family"
)

// deepseek are the keys that DeepSeek's models with latent attention and experts have, and their values
// where a file does not say.
func deepseek(class string, absent map[string]string) hf.Family {
	more := map[string]string{"kv_lora_rank": "512", "q_lora_rank": "1536", "qk_nope_head_dim": "128",
		"qk_rope_head_dim": "64", "v_head_dim": "128", "rms_norm_eps": "1e-6"}
	for key, value := range absent {
		more[key] = value
	}
	return hf.Family{Class: class, PlainHeads: true, Null: []string{"q_lora_rank"}, Absent: more,
		Has: slices.Concat(family.LatentNames, []string{"attention_bias", "num_experts",
			"num_experts_per_tok", "moe_intermediate_size", "n_group", "topk_group", "routed_scaling_factor",
			"n_shared_experts", "first_k_dense_replace", "router_aux_loss_coef"}), Alias: map[string]string{
			"n_routed_experts": "num_experts", "aux_loss_alpha": "router_aux_loss_coef"}, Omit: []string{"head_dim"},
		Idle: []string{"ep_size", "seq_aux", "output_router_logits", "qk_head_dim", "head_dim"}}
}

// DeepSeek V2 and V2 Lite: latent attention, dense layers first, and experts that a softmax scores, in V2
// those of the best groups only.
var _ = family.Register(family.Family{ModelType: "deepseek_v2", Paper: "2405.04434", HF: deepseek2(),
	Loong: []loong.Decoder{{Class: "DeepseekConfig", Convert: "deepseek_v2_convert.yaml", Alone: true},
		{Class: "DeepseekConfig", Convert: "deepseek_v2_lite_convert.yaml", Alone: true}},
	Spec: func(c configs.Model, s *family.Spec) {
		k := family.Mixture.Of(c)
		s.UseLatent(c)
		s.UseExperts(c, family.DenseFirst(c))
		s.Experts.Router = routing.Router{Scale: k.RoutedScale, Groups: k.ExpertGroups, Kept: k.GroupsKept, Best: 1}
	}, Source: func(c configs.Model) func(string) family.Source {
		return family.LatentPlaces(c, family.EachExpert(c))
	}, Other: func(c configs.Model) func(string) family.Source {
		return family.LatentPlaces(c, family.FusedExperts(c))
	}})

// deepseek2 describes configurations of DeepSeek-V2, with the defaults that its published class has for absent keys.
// Groups of experts count only with the method of choice that is limited by groups.
func deepseek2() hf.Family {
	f := deepseek("DeepseekV2ForCausalLM",
		map[string]string{"hidden_size": "4096", "intermediate_size": "11008", "num_hidden_layers": "32",
			"num_attention_heads": "32", "vocab_size": "102400", "max_position_embeddings": "2048", "num_experts": "64",
			"n_shared_experts": "2", "moe_intermediate_size": "1407"})
	f.Score, f.Early, f.Has = "softmax", true, append(f.Has, "mlp_bias")
	f.Only = map[string]string{"norm_topk_prob": "false", "scoring_func": `"softmax"`, "moe_layer_freq": "1"}
	type keys struct {
		Method string `key:"topk_method" oneof:"greedy|group_limited_greedy"`
		Groups int    `key:"n_group"`
	}
	f.Own = []hf.Own{hf.Keys(keys{Method: "greedy"}, func(k keys, d *hf.Decoder) {
		if k.Method == "greedy" && k.Groups > 1 {
			d.Fail("n_group", "groups play no part where topk_method is greedy",
				"set n_group to 1, or topk_method to group_limited_greedy")
		}
	})}
	f.Write = func(m hf.Values, out map[string]any) {
		out["topk_method"] = "greedy"
		if m.Int("n_group") > 1 {
			out["topk_method"] = "group_limited_greedy"
		}
	}
	return f
}

// DeepSeek V3 and R1: as V2, but a sigmoid scores, numbers of their own help to choose, and a layer behind
// the last predicts a further token.
var _ = family.Register(deepseek3("deepseek_v3", "2412.19437", ""))

// Kimi K2: DeepSeek V3 with more experts, fewer heads and no groups.
var _ = family.Register(deepseek3("kimi_k2", "2507.20534", "kimi_k2_convert.yaml"))

// deepseek3 describes DeepSeek-V3 and models built like it. They differ in name, paper and the file
// by which LoongForge converts them.
func deepseek3(name, paper, convert string) family.Family {
	f := deepseek("DeepseekV3ForCausalLM",
		map[string]string{"hidden_size": "7168", "intermediate_size": "18432", "num_hidden_layers": "61",
			"num_attention_heads": "128", "vocab_size": "129280", "max_position_embeddings": "4096",
			"num_experts": "256", "n_shared_experts": "1", "moe_intermediate_size": "2048", "num_experts_per_tok": "8",
			"n_group": "8", "topk_group": "4", "routed_scaling_factor": "2.5", "first_k_dense_replace": "3",
			"norm_topk_prob": "true", "bos_token_id": "0", "eos_token_id": "1"})
	f.Score, f.Corrected = "sigmoid", true
	f.Has = append(f.Has, "norm_topk_prob", "rope_interleave")
	f.Only = map[string]string{"scoring_func": `"sigmoid"`, "topk_method": `"noaux_tc"`, "moe_layer_freq": "1"}
	f.Offered = []string{"num_nextn_predict_layers"}
	return family.Family{ModelType: name, Paper: paper, HF: f, Loong: []loong.Decoder{{Class: "DeepseekConfig",
		Convert: convert, Alone: name != "kimi_k2", Preset: map[string]string{"norm_topk_prob": "true"}}},
		Spec: func(c configs.Model, s *family.Spec) {
			s.UseLatent(c)
			corrected(s, c)
		}, Source: func(c configs.Model) func(string) family.Source {
			return family.BehindLast(c, family.LatentPlaces(c, family.EachExpert(c)))
		},
		// Checkpoints exist with one tensor per expert and with all experts in one.
		Other: func(c configs.Model) func(string) family.Source {
			return family.BehindLast(c, family.LatentPlaces(c, family.FusedExperts(c)))
		}}
}

// corrected are layers with experts as DeepSeek V3 and GLM 4.5 have them, and one behind the last for a further token.
func corrected(s *family.Spec, c configs.Model) {
	k := family.Mixture.Of(c)
	s.UseExperts(c, family.DenseFirst(c))
	s.Further, s.TokenFirst = max(1, s.MTP), true
	s.Experts.Bias = "gate." + family.Correction
	s.Experts.Router = routing.Router{Score: routing.Sigmoid, Normalize: k.NormTopK, Eps: 1e-20, Scale: k.RoutedScale,
		Groups: k.ExpertGroups, Kept: k.GroupsKept, Best: min(2, k.Experts/max(1, k.ExpertGroups))}
}
