package family

import (
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
)

// Llama 2, 3, 3.1 and 3.2: grouped-query attention, SwiGLU; 3.1 and 3.2 scale their rotary frequencies.
var _ = Register(Family{ModelType: "llama", Paper: "2307.09288, 2407.21783",
	HF:    hf.Family{Class: "LlamaForCausalLM"},
	Loong: []loong.Decoder{{Class: "LLaMAConfig"}}})
