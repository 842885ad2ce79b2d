package decoders

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// OLMo 2: norms behind attention and MLP and none before, and norms of queries and keys over all heads.
var _ = family.Register(family.Family{ModelType: "olmo2", Paper: "2501.00656", HF: hf.Family{
	Class: "Olmo2ForCausalLM", OutBias: true, Has: []string{"attention_bias"}, Absent: map[string]string{
		"hidden_size": "4096", "intermediate_size": "11008", "num_hidden_layers": "32", "num_attention_heads": "32",
		"vocab_size": "50304", "max_position_embeddings": "2048", "rms_norm_eps": "1e-5", "eos_token_id": "50279"},
	Omit: []string{"head_dim"}}, Spec: func(_ configs.Model, s *family.Spec) {
	s.QKWhole = true
	s.Norms = family.Norms{AfterMixer: "post_attention_layernorm", AfterMLP: "post_feedforward_layernorm"}
}})
