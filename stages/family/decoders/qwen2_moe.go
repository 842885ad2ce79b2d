package decoders

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/family"
)

// Qwen 1.5 and 2 with experts: Qwen 2's attention, a softmax over all experts, and an MLP behind a gate that
// all tokens go to.
var _ = family.Register(family.Family{ModelType: "qwen2_moe", Paper: "2407.10671", HF: family.Mixed(
	windowed(hf.Family{Class: "Qwen2MoeForCausalLM", Score: "softmax", Omit: []string{"attention_bias",
		"head_dim"}, Has: append([]string{"attention_bias", "shared_expert_intermediate_size"}, qwenExperts...),
		Usual: map[string]string{"attention_bias": "true"}, Alias: map[string]string{"qkv_bias": "attention_bias"},
		Write: func(m hf.Values, out map[string]any) { out["qkv_bias"] = m["attention_bias"] },
		Absent: map[string]string{"hidden_size": "2048", "attention_bias": "true", "intermediate_size": "5632",
			"num_hidden_layers": "24", "num_attention_heads": "16", "num_key_value_heads": "16",
			"vocab_size": "151936", "max_position_embeddings": "32768", "rms_norm_eps": "1e-6", "num_experts": "60",
			"num_experts_per_tok": "4", "moe_intermediate_size": "1408", "shared_expert_intermediate_size": "5632",
			"router_aux_loss_coef": "0.001"}}, everyOther)), Spec: func(c configs.Model, s *family.Spec) {
	s.UseExperts(c, family.DenseSteps(c))
	s.Experts.Router = routing.Router{Normalize: family.Mixture.Of(c).NormTopK}
	if family.Mixture.Of(c).SharedWidth > 0 {
		s.Experts.Shared = s.GatedOf(family.Mixture.Of(c).SharedWidth)
		s.Experts.SharedName, s.Experts.SharedGate = "shared_expert", "shared_expert_gate"
	}
}, Source: family.EachExpert, Other: family.FusedExperts})

// everyOther has windows in every other of the first max_window_layers layers, as Qwen2MoeConfig has them.
func everyOther(layer, most int) bool { return layer%2 == 0 && layer < most }
