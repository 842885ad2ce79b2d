package decoders

import (
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Llama 2, 3, 3.1 and 3.2: grouped-query attention, SwiGLU; 3.1 and 3.2 scale their rotary frequencies.
var _ = family.Register(family.Family{ModelType: "llama", Paper: "2307.09288, 2407.21783",
	HF: hf.Family{Class: "LlamaForCausalLM", OutBias: true, Has: []string{"attention_bias", "mlp_bias"},
		Absent: map[string]string{"hidden_size": "4096", "intermediate_size": "11008",
			"num_hidden_layers": "32", "num_attention_heads": "32", "vocab_size": "32000",
			"max_position_embeddings": "2048", "rms_norm_eps": "1e-6", "bos_token_id": "1", "eos_token_id": "2"}},
	Loong: []loong.Decoder{{Class: "LLaMAConfig"}}})

// Seed-OSS: Llama with biases on query, key and value, and perhaps elsewhere.
var _ = family.Register(family.Family{ModelType: "seed_oss", HF: hf.Family{Class: "SeedOssForCausalLM",
	Has: []string{"attention_bias", "attention_out_bias", "mlp_bias"}, Dropouts: []string{"attention_dropout",
		"residual_dropout"}, Usual: map[string]string{"attention_bias": "true"}, Absent: map[string]string{
		"hidden_size": "4096", "intermediate_size": "27648", "num_hidden_layers": "64", "num_attention_heads": "80",
		"num_key_value_heads": "8", "head_dim": "128", "vocab_size": "155136", "max_position_embeddings": "524288",
		"rms_norm_eps": "1e-6", "attention_bias": "true", "bos_token_id": "0", "eos_token_id": "2"}}})

// Arcee's AFM: Llama whose MLP has no gate.
var _ = family.Register(family.Family{ModelType: "arcee", HF: hf.Family{Class: "ArceeForCausalLM", OutBias: true,
	Has: []string{"attention_bias", "mlp_bias"}, Usual: map[string]string{"hidden_act": `"relu2"`},
	Absent: map[string]string{"hidden_size": "2560", "intermediate_size": "18432", "num_hidden_layers": "32",
		"num_attention_heads": "32", "vocab_size": "32000", "max_position_embeddings": "4096", "rms_norm_eps": "1e-5",
		"hidden_act": `"relu2"`, "bos_token_id": "128000", "eos_token_id": "128001"}},
	Spec: func(_ configs.Model, s *family.Spec) { everywhere(s, "plain") }})

// Jais 2: Arcee's layers with layer norms, and biases everywhere.
var _ = family.Register(family.Family{ModelType: "jais2", HF: hf.Family{Class: "Jais2ForCausalLM", OutBias: true,
	Has: []string{"attention_bias", "mlp_bias"}, Alias: map[string]string{"layer_norm_eps": "rms_norm_eps"},
	Usual: map[string]string{"hidden_act": `"relu2"`, "attention_bias": "true", "mlp_bias": "true"},
	Absent: map[string]string{"hidden_size": "3328", "intermediate_size": "26624", "num_hidden_layers": "32",
		"num_attention_heads": "26", "vocab_size": "150272", "max_position_embeddings": "8192",
		"rms_norm_eps": "1e-5", "hidden_act": `"relu2"`, "attention_bias": "true", "mlp_bias": "true",
		"bos_token_id": "0", "eos_token_id": "150024"}}, Spec: func(_ configs.Model, s *family.Spec) {
	s.Norm = block.Norm{Layer: true}
	everywhere(s, "plain")
}})

// CWM: Llama with a window in all layers but each fourth, the first of them.
var _ = family.Register(family.Family{ModelType: "cwm", Paper: "2510.02387", HF: hf.Family{Class: "CwmForCausalLM",
	Has: []string{"mlp_bias", "sliding_window", "layer_types"}, Absent: map[string]string{"hidden_size": "6144",
		"intermediate_size": "21504", "num_hidden_layers": "64", "num_attention_heads": "48",
		"num_key_value_heads": "8", "head_dim": "128", "vocab_size": "128256", "max_position_embeddings": "131072",
		"rms_norm_eps": "1e-5", "sliding_window": "8192", "rope_theta": "1000000", "rope_scaling": `{"rope_type":
			"llama3", "factor": 16, "low_freq_factor": 1, "high_freq_factor": 4,
			"original_max_position_embeddings": 8192}`, "bos_token_id": "128000",
		"eos_token_id": "[128001, 128008, 128009]"}}, Spec: func(c configs.Model, s *family.Spec) {
	s.Alternate(4, c.LayerTypes)
	if len(c.LayerTypes) == 0 { // the first layer sees everything, not the fourth
		s.Mixers = slices.Concat([]string{"full_attention"}, s.Mixers)[:s.Layers]
	}
}})

// nanochat: norms without weights, also of the embeddings; heads that turn backwards and are normed; an MLP without a
// gate; and a soft cap of logits.
var _ = family.Register(family.Family{ModelType: "nanochat", HF: hf.Family{Class: "NanoChatForCausalLM", OutBias: true,
	Has: []string{"attention_bias", "final_logit_softcapping"}, Null: []string{"final_logit_softcapping"},
	Fixed: map[string]string{"qk_norm": "true"}, Omit: []string{"qk_norm"}, Usual: map[string]string{
		"hidden_act": `"relu2"`}, Absent: map[string]string{"hidden_size": "768", "intermediate_size": "8192",
		"num_hidden_layers": "12", "num_attention_heads": "6", "vocab_size": "50304", "max_position_embeddings": "2048",
		"rms_norm_eps": "1e-6", "hidden_act": `"relu2"`, "final_logit_softcapping": "15", "bos_token_id": "0",
		"eos_token_id": "1"}}, Spec: func(_ configs.Model, s *family.Spec) {
	s.Norm, s.EmbedNorm, s.Rope.Back = block.Norm{Bare: true}, true, true
	everywhere(s, "plain")
}, Source: func(configs.Model) func(string) family.Source {
	rename := strings.NewReplacer(".mlp.up_proj.", ".mlp.fc1.", ".mlp.down_proj.", ".mlp.fc2.")
	return func(name string) family.Source { return family.Source{Name: rename.Replace(name)} }
}})

// InternLM 3: Llama with all biases or none.
var _ = family.Register(family.Family{ModelType: "internlm3", HF: hf.Family{Class: "LlamaForCausalLM", OutBias: true,
	Has: []string{"attention_bias", "mlp_bias"}, Alias: map[string]string{"qkv_bias": "attention_bias",
		"bias": "mlp_bias"}, Absent: map[string]string{"hidden_size": "4096", "intermediate_size": "10240",
		"num_hidden_layers": "48", "num_attention_heads": "32", "num_key_value_heads": "2", "head_dim": "128",
		"vocab_size": "128512", "max_position_embeddings": "32768", "rms_norm_eps": "1e-5", "bos_token_id": "1",
		"eos_token_id": "2"}}})

// IQuest Coder: Llama.
var _ = family.Register(family.Family{ModelType: "iquestcoder", HF: hf.Family{Class: "LlamaForCausalLM",
	OutBias: true, Has: []string{"attention_bias", "mlp_bias"}, Only: map[string]string{"clip_qkv": "null"},
	Absent: map[string]string{"hidden_size": "5120", "intermediate_size": "27648", "num_hidden_layers": "80",
		"num_attention_heads": "40", "num_key_value_heads": "8", "head_dim": "128", "vocab_size": "76800",
		"max_position_embeddings": "131072", "rms_norm_eps": "1e-5", "bos_token_id": "1", "eos_token_id": "2"}}})

// Helium: Llama whose neighbouring numbers of a head turn together.
var _ = family.Register(family.Family{ModelType: "helium", HF: hf.Family{Class: "HeliumForCausalLM",
	Has: []string{"attention_bias", "mlp_bias"}, Absent: map[string]string{"hidden_size": "2560",
		"intermediate_size": "7040", "num_hidden_layers": "24", "num_attention_heads": "20",
		"num_key_value_heads": "20", "head_dim": "128", "vocab_size": "48000", "max_position_embeddings": "4096",
		"rms_norm_eps": "1e-8", "rope_theta": "100000", "bos_token_id": "1", "eos_token_id": "2"}},
	Spec: func(_ configs.Model, s *family.Spec) { s.RopePairs = true }})
