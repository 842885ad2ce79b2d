package decoders

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/family"
)

// Qwen 3 with experts: Qwen 3's attention, and a softmax over all experts, of which the best are taken.
var _ = family.Register(family.Family{ModelType: "qwen3_moe", Paper: "2505.09388", HF: family.Mixed(
	windowed(hf.Family{Class: "Qwen3MoeForCausalLM", OutBias: true, Score: "softmax", Fixed: map[string]string{
		"qk_norm": "true"}, Omit: []string{"qk_norm"}, Has: append([]string{"attention_bias"}, qwenExperts...),
		Absent: map[string]string{"hidden_size": "2048", "intermediate_size": "6144", "num_hidden_layers": "24",
			"num_attention_heads": "32", "num_key_value_heads": "4", "vocab_size": "151936",
			"max_position_embeddings": "32768", "rms_norm_eps": "1e-6", "num_experts": "128",
			"num_experts_per_tok": "8", "moe_intermediate_size": "768", "router_aux_loss_coef": "0.001"}}, nil)),
	Spec: func(c configs.Model, s *family.Spec) {
		if c.SlidingWindow > 0 {
			slideAll(s)
		}
		s.UseExperts(c, family.DenseSteps(c))
		s.Experts.Router = routing.Router{Normalize: family.Mixture.Of(c).NormTopK}
	},
	Loong: []loong.Decoder{{Class: "Qwen3Config", Mixed: true,
		Preset: map[string]string{"norm_topk_prob": "true"}}},
	Source: family.EachExpert, Other: family.FusedExperts})

// qwenExperts are the keys of Qwen's mixtures.
var qwenExperts = []string{"num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
	"decoder_sparse_step", "mlp_only_layers", "router_aux_loss_coef", "output_router_logits"}
