package decoders

import (
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/family"
)

// Qwen 1: a Llama whose checkpoints have one biased projection for query, key and value, and whose w2 is the gate.
var _ = family.Register(family.Family{ModelType: "qwen", Paper: "2309.16609",
	HF: hf.Family{Class: "QWenLMHeadModel", Remote: true, Fixed: map[string]string{"attention_bias": "true"},
		PlainHeads: true, Doubled: true, Alias: map[string]string{"layer_norm_epsilon": "rms_norm_eps",
			"rotary_emb_base": "rope_theta", "kv_channels": "head_dim"}, Only: map[string]string{"rotary_pct": "1.0",
			"no_bias": "true", "scale_attn_weights": "true", "emb_dropout_prob": "0.0", "attn_dropout_prob": "0.0"},
		Absent: map[string]string{"rms_norm_eps": "1e-6", "max_position_embeddings": "8192"},
		Omit:   []string{"attention_bias", "num_key_value_heads", "rope_scaling", "eos_token_id"},
		// used when generating beyond seq_length, or to choose kernels
		Idle: []string{"seq_length", "use_dynamic_ntk", "use_logn_attn", "use_flash_attn",
			"bf16", "fp16", "fp32", "onnx_safe", "softmax_in_fp32", "use_cache_quantization",
			"use_cache_kernel", "params_dtype", "attn_implementation_internal"}}, Loong: []loong.Decoder{
		{Class: "QwenConfig", Convert: "qwen_convert.yaml", Tokens: QwenTokens}}, Source: qwenSource})

// qwenSource maps a logical name to the published one, and query, key and value to their rows of the joint projection.
func qwenSource(c configs.Model) func(string) family.Source {
	rename := strings.NewReplacer("model.layers.", "transformer.h.", "model.embed_tokens", "transformer.wte",
		"model.norm", "transformer.ln_f", "input_layernorm", "ln_1", "post_attention_layernorm", "ln_2",
		"self_attn.o_proj", "attn.c_proj", "mlp.gate_proj", "mlp.w2", "mlp.up_proj", "mlp.w1", "mlp.down_proj",
		"mlp.c_proj", "self_attn.q_proj", "attn.c_attn", "self_attn.k_proj", "attn.c_attn", "self_attn.v_proj",
		"attn.c_attn")
	width := c.Heads * c.HeadDim
	return func(name string) family.Source {
		s := family.Source{Name: rename.Replace(name)}
		for i, p := range []string{".q_proj.", ".k_proj.", ".v_proj."} {
			if strings.Contains(name, p) {
				s.Rows = [][2]int{{i * width, (i + 1) * width}}
			}
		}
		return s
	}
}
