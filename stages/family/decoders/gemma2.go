package decoders

import (
	"math"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// Gemma 2: norms with weight 1 + w before and after attention and MLP, soft caps of scores and logits,
// layers with a window and without in turns, scaled embeddings, and a head tied to them.
var _ = family.Register(gemma2("gemma2", "Gemma2ForCausalLM", "2408.00118", sandwich))

// VaultGemma: Gemma 2 with norms before attention and MLP alone.
var _ = family.Register(gemma2("vaultgemma", "VaultGemmaForCausalLM", "2510.15001",
	family.Norms{BeforeMixer: sandwich.BeforeMixer, BeforeMLP: sandwich.BeforeMLP}))

// gemma2 describes both.
func gemma2(name, class, paper string, norms family.Norms) family.Family {
	return family.Family{ModelType: name, Paper: paper, HF: hf.Family{Class: class, OutBias: true,
		Has: []string{"attention_bias", "sliding_window", "layer_types", "query_pre_attn_scalar",
			"attn_logit_softcapping", "final_logit_softcapping"},
		Absent: map[string]string{"hidden_size": "2304", "intermediate_size": "9216", "num_hidden_layers": "26",
			"num_attention_heads": "8", "vocab_size": "256000", "bos_token_id": "2", "eos_token_id": "1",
			"rms_norm_eps": "1e-6", "head_dim": "256", "num_key_value_heads": "4", "query_pre_attn_scalar": "256",
			"sliding_window": "4096", "attn_logit_softcapping": "50", "final_logit_softcapping": "30",
			"tie_word_embeddings": "true", "max_position_embeddings": "8192"}, Fixed: map[string]string{
			"hidden_act": `"gelu_pytorch_tanh"`}, Alias: map[string]string{"hidden_activation": "hidden_act"},
		Only: map[string]string{"use_bidirectional_attention": "false"}, Omit: []string{"rope_scaling"},
		Idle: []string{"cache_implementation"}, Whole: []string{"query_pre_attn_scalar"}, Null: []string{
			"attn_logit_softcapping", "final_logit_softcapping"}}, Spec: func(c configs.Model, s *family.Spec) {
		s.Norm.Plus = 1
		s.Norms = norms
		s.EmbedScale, s.EmbedRounds = math.Sqrt(float64(c.Hidden)), true
		s.AttnScale = queryScale(c)
		s.Alternate(2, c.LayerTypes)
	}}
}

// sandwich are the names of Gemma's norms.
var sandwich = family.Norms{BeforeMixer: "input_layernorm", AfterMixer: "post_attention_layernorm",
	BeforeMLP: "pre_feedforward_layernorm", AfterMLP: "post_feedforward_layernorm"}

// queryScale is the factor on scores that query_pre_attn_scalar stands for, 0 for the usual one.
func queryScale(c configs.Model) float64 {
	if family.Scales.Of(c).QueryScalar == 0 {
		return 0
	}
	return 1 / math.Sqrt(family.Scales.Of(c).QueryScalar)
}
