package decoders

import (
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
