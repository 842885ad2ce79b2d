package family

import (
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
)

// Qwen 1.5, 2 and 2.5: Llama with biases on query, key and value.
var _ = Register(Family{ModelType: "qwen2", Paper: "2407.10671, 2412.15115",
	HF:    hf.Family{Class: "Qwen2ForCausalLM", Fixed: map[string]string{"attention_bias": "true"}, Omit: []string{"attention_bias"}},
	Loong: []loong.Decoder{{Class: "QwenConfig", Tokens: qwenTokens}, {Class: "Qwen2Config", Tokens: qwenTokens}}})
