package decoders

import (
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// GLM-4 of 2024 (GlmForCausalLM): half of each head turns, in neighbouring pairs; query, key and value may
// have biases; gate and up are one matrix in checkpoints.
var _ = family.Register(family.Family{ModelType: "glm", Paper: "2406.12793", HF: glmConfig("GlmForCausalLM"),
	Spec: func(_ configs.Model, s *family.Spec) { s.RopePairs = true }, Source: gateUpSource})

// GLM-4 of 2025 (Glm4ForCausalLM): the same with norms after attention and MLP too.
var _ = family.Register(family.Family{ModelType: "glm4", Paper: "2406.12793", HF: glmConfig("Glm4ForCausalLM"),
	Spec: func(_ configs.Model, s *family.Spec) {
		s.RopePairs = true
		s.Norms = family.Norms{BeforeMixer: "input_layernorm", AfterMixer: "post_self_attn_layernorm",
			BeforeMLP: "post_attention_layernorm", AfterMLP: "post_mlp_layernorm"}
	}, Source: gateUpSource})

// glmConfig: what config.json leaves out are transformers' defaults.
func glmConfig(class string) hf.Family {
	return hf.Family{Class: class, Has: []string{"attention_bias", "partial_rotary_factor"}, Absent: map[string]string{
		"hidden_size": "4096", "intermediate_size": "13696", "num_hidden_layers": "40", "num_attention_heads": "32",
		"vocab_size": "151552", "max_position_embeddings": "131072", "eos_token_id": "[151329, 151336, 151338]",
		"rms_norm_eps": "1.5625e-07", "head_dim": "128", "num_key_value_heads": "2", "attention_bias": "true",
		"partial_rotary_factor": "0.5"}, Omit: []string{"rope_scaling"}}
}

// gateUpSource finds gate and up one after the other in gate_up_proj.
func gateUpSource(c configs.Model) func(string) family.Source {
	return func(name string) family.Source {
		s := family.Source{Name: name}
		for i, p := range []string{".gate_proj.", ".up_proj."} {
			if strings.Contains(name, ".mlp"+p) {
				s.Name = strings.Replace(name, p, ".gate_up_proj.", 1)
				s.Rows = [][2]int{{i * c.Intermediate, (i + 1) * c.Intermediate}}
			}
		}
		return s
	}
}
