package decoders

import (
	"math"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// Granite 3 (dense): Llama with factors on embeddings, scores, branches and logits.
var _ = family.Register(family.Family{ModelType: "granite", Paper: "2408.13359",
	HF: hf.Family{Class: "GraniteForCausalLM", OutBias: true, Has: []string{"embedding_multiplier",
		"attention_multiplier", "residual_multiplier", "logits_scaling", "attention_bias", "mlp_bias"},
		Absent: map[string]string{"hidden_size": "4096", "intermediate_size": "11008", "num_hidden_layers": "32",
			"num_attention_heads": "32", "vocab_size": "32000", "max_position_embeddings": "2048",
			"rms_norm_eps": "1e-6", "attention_multiplier": "1", "bos_token_id": "1", "eos_token_id": "2"},
		Omit: []string{"head_dim"}, Write: func(m hf.Values, out map[string]any) {
			if out["attention_multiplier"] == nil { // transformers' default is 1
				out["attention_multiplier"] = 1 / math.Sqrt(float64(m.Int("head_dim")))
			}
		}}})

// HyperCLOVA X: Granite with norms behind attention and MLP too, whose logits are multiplied with logits_scaling.
var _ = family.Register(family.Family{ModelType: "hyperclovax", HF: hf.Family{Class: "HyperCLOVAXForCausalLM",
	OutBias: true, Has: []string{"embedding_multiplier", "attention_multiplier", "residual_multiplier",
		"logits_scaling", "attention_bias", "mlp_bias"}, Only: map[string]string{"use_post_norm": "true"},
	Absent: map[string]string{"hidden_size": "4096", "intermediate_size": "11008", "num_hidden_layers": "32",
		"num_attention_heads": "32", "vocab_size": "32000", "max_position_embeddings": "2048", "rms_norm_eps": "1e-6",
		"bos_token_id": "1", "eos_token_id": "2"}}, Spec: func(c configs.Model, s *family.Spec) {
	s.LogitScale = family.Scales.Of(c).LogitDivisor
	s.Norms = family.Norms{BeforeMixer: "input_layernorm", AfterMixer: "post_norm1",
		BeforeMLP: "post_attention_layernorm", AfterMLP: "post_norm2"}
}})
