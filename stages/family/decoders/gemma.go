package decoders

import (
	"math"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// Gemma: norms with weight 1 + w, scaled embeddings, and a head tied to them.
var _ = family.Register(family.Family{ModelType: "gemma", Paper: "2403.08295", HF: hf.Family{
	Class: "GemmaForCausalLM", OutBias: true, Has: []string{"attention_bias"}, Absent: map[string]string{
		"hidden_size": "3072", "intermediate_size": "24576", "num_hidden_layers": "28", "num_attention_heads": "16",
		"vocab_size": "256000", "bos_token_id": "2", "eos_token_id": "1", "rms_norm_eps": "1e-6", "head_dim": "256",
		"num_key_value_heads": "16", "tie_word_embeddings": "true", "max_position_embeddings": "8192"},
	Fixed: map[string]string{"hidden_act": `"gelu_pytorch_tanh"`}, Alias: map[string]string{
		"hidden_activation": "hidden_act"}, Only: map[string]string{"use_bidirectional_attention": "false"},
	Omit: []string{"rope_scaling"}}, Spec: func(c configs.Model, s *family.Spec) {
	s.Norm.Plus = 1
	s.EmbedScale, s.EmbedRounds = math.Sqrt(float64(c.Hidden)), true
}})
