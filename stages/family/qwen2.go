package family

import (
	"maps"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
)

// Qwen 1.5, 2 and 2.5: Llama with biases on query, key and value.
var _ = Register(Family{ModelType: "qwen2", Paper: "2407.10671, 2412.15115",
	HF: hf.Family{Class: "Qwen2ForCausalLM", Fixed: map[string]string{"attention_bias": "true"},
		Omit: []string{"attention_bias"}, Absent: qwenDefaults},
	Loong: []loong.Decoder{{Class: "QwenConfig", Tokens: qwenTokens},
		{Class: "Qwen2Config", Tokens: qwenTokens}}})

// qwenDefaults are transformers' of Qwen2Config and Qwen3Config.
var qwenDefaults = map[string]string{"hidden_size": "4096", "intermediate_size": "22016",
	"num_hidden_layers": "32", "num_attention_heads": "32", "num_key_value_heads": "32", "vocab_size": "151936",
	"max_position_embeddings": "32768", "rms_norm_eps": "1e-6"}

// with is a map with one more entry.
func with(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	m[key] = value
	return m
}
