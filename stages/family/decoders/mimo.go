package decoders

import (
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/family"
)

// MiMo-7B: Qwen2's layer with one multi-token-prediction layer.
var _ = family.Register(family.Family{ModelType: "mimo", Paper: "2505.07608", HF: hf.Family{Class: "MiMoForCausalLM",
	Remote: true, Fixed: map[string]string{"attention_bias": "true"}, Has: []string{"num_nextn_predict_layers"},
	Absent: qwenDefaults}, Loong: []loong.Decoder{{Class: "MimoConfig", Alone: true}}})
