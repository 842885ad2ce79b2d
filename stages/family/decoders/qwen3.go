package decoders

import (
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/family"
)

// Qwen3 dense: RMS norms on each head's query and key, no biases.
var _ = family.Register(family.Family{ModelType: "qwen3", Paper: "2505.09388",
	HF: windowed(hf.Family{Class: "Qwen3ForCausalLM", OutBias: true,
		Has: []string{"attention_bias"}, Fixed: map[string]string{"qk_norm": "true"},
		Omit: []string{"qk_norm"}, Absent: with(qwenDefaults, "head_dim", "128")}, fromOn),
	Loong: []loong.Decoder{{Class: "Qwen3Config", Tokens: QwenTokens}}})
