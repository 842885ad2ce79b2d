package decoders

import (
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/family"
)

// Llama 2, 3, 3.1 and 3.2: grouped-query attention, SwiGLU; 3.1 and 3.2 scale their rotary frequencies.
var _ = family.Register(family.Family{ModelType: "llama", Paper: "2307.09288, 2407.21783",
	HF: hf.Family{Class: "LlamaForCausalLM", OutBias: true, Has: []string{"attention_bias", "mlp_bias"},
		Absent: map[string]string{"hidden_size": "4096", "intermediate_size": "11008",
			"num_hidden_layers": "32", "num_attention_heads": "32", "vocab_size": "32000",
			"max_position_embeddings": "2048", "rms_norm_eps": "1e-6", "bos_token_id": "1", "eos_token_id": "2"}},
	Loong: []loong.Decoder{{Class: "LLaMAConfig"}}})
