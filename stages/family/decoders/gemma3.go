package decoders

import (
	"math"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// Gemma 3's language model: Gemma 2 with norms of queries and keys in place of soft caps, five layers with
// a window to one without, and rotary frequencies of their own for those with a window.
var _ = family.Register(family.Family{ModelType: "gemma3_text", Paper: "2503.19786",
	HF: hf.Family{Class: "Gemma3ForCausalLM", OutBias: true, Has: []string{"attention_bias", "sliding_window",
		"layer_types", "query_pre_attn_scalar", "rope_local_base_freq", "final_logit_softcapping"},
		Absent: map[string]string{"hidden_size": "2304", "intermediate_size": "9216", "num_hidden_layers": "26",
			"num_attention_heads": "8", "vocab_size": "262208", "rms_norm_eps": "1e-6", "head_dim": "256",
			"num_key_value_heads": "4", "query_pre_attn_scalar": "256", "sliding_window": "4096",
			"tie_word_embeddings": "true", "max_position_embeddings": "131072", "rope_theta": "1000000",
			"rope_local_base_freq": "10000", "bos_token_id": "2", "eos_token_id": "1"},
		Fixed: map[string]string{"hidden_act": `"gelu_pytorch_tanh"`, "qk_norm": "true"}, Alias: map[string]string{
			"hidden_activation": "hidden_act"}, Only: map[string]string{"use_bidirectional_attention": "false",
			"sliding_window_pattern": "6", "_sliding_window_pattern": "6"}, Omit: []string{"qk_norm"},
		// transformers hands the cap to its attention, which does not have it
		Idle: []string{"cache_implementation", "attn_logit_softcapping"}, Whole: []string{"query_pre_attn_scalar"},
		Null: []string{"final_logit_softcapping"}}, Spec: func(c configs.Model, s *family.Spec) {
		s.Norm.Plus = 1
		s.Norms = sandwich
		s.EmbedScale, s.EmbedRounds = math.Sqrt(float64(c.Hidden)), true
		s.AttnScale = queryScale(c)
		s.Alternate(6, c.LayerTypes)
	}})
