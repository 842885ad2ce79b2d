package decoders

import (
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/family"
)

// gpt-oss: layers with a window and without in turns, a logit a head that belongs to no key, biases
// everywhere, and experts whose gate and up have bounds. intermediate_size is an expert's width.
var _ = family.Register(family.Family{ModelType: "gpt_oss", Paper: "2508.10925",
	HF: hf.Family{Class: "GptOssForCausalLM", OutBias: true, Score: "softmax",
		Has: []string{"num_experts", "num_experts_per_tok", "router_aux_loss_coef", "output_router_logits",
			"sliding_window", "layer_types", "attention_bias", "swiglu_limit", "swiglu_alpha"},
		Alias: map[string]string{"num_local_experts": "num_experts"},
		Idle:  []string{"experts_per_token", "initial_context_length"},
		Absent: map[string]string{"hidden_size": "2880", "intermediate_size": "2880",
			"num_hidden_layers": "36", "num_attention_heads": "64", "num_key_value_heads": "8",
			"head_dim":   "64",
			"vocab_size": "201088", "max_position_embeddings": "131072", "rms_norm_eps": "1e-5",
			"rope_theta": "150000", "num_experts": "128", "num_experts_per_tok": "4",
			"router_aux_loss_coef": "0.001", "sliding_window": "128", "attention_bias": "true",
			"swiglu_limit": "7", "rope_scaling": `{"rope_type": "yarn", "factor": 32, "beta_fast": 32,
				"beta_slow": 1, "truncate": false, "original_max_position_embeddings": 4096}`}},
	Spec: func(c configs.Model, s *family.Spec) {
		s.Sinks = true
		s.Mixers = c.LayerTypes
		s.Alternate(2, c.LayerTypes)
		s.UseExperts(c, func(int) bool { return false })
		s.Experts.Router = routing.Router{Normalize: true} // as a softmax over the chosen ones
		k := family.Bounds.Of(c)
		s.Experts.Biases, s.Experts.Bound, s.Experts.Slope = true, k.GateBound, k.GateSlope
	}, Source: func(configs.Model) func(string) family.Source {
		at := family.ExpertPlaces{Turned: true, InTurns: true,
			Rename: strings.NewReplacer(".mlp.gate.", ".mlp.router.")}.Source
		return func(name string) family.Source {
			s := at(name)
			s.Flat = strings.HasSuffix(name, ".sinks")
			return s
		}
	}})
