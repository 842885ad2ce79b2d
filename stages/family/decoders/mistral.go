package decoders

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// Mistral: Llama whose layers all have a window where the configuration gives one.
var _ = family.Register(family.Family{ModelType: "mistral", Paper: "2310.06825",
	HF: hf.Family{Class: "MistralForCausalLM", Has: []string{"sliding_window"}, Null: []string{"sliding_window"},
		Absent: with(mistralDefaults, "head_dim", "128")}, Spec: func(_ configs.Model, s *family.Spec) { slideAll(s) }})

// Ministral: Mistral whose layers are named one by one.
var _ = family.Register(family.Family{ModelType: "ministral", Paper: "2310.06825", HF: hf.Family{
	Class: "MinistralForCausalLM", Has: []string{"sliding_window", "layer_types"}, Null: []string{"sliding_window"},
	Absent: mistralDefaults}, Spec: func(_ configs.Model, s *family.Spec) { slideAll(s) }})

// mistralDefaults are transformers' where config.json is silent.
var mistralDefaults = map[string]string{"hidden_size": "4096", "intermediate_size": "14336", "num_hidden_layers": "32",
	"num_attention_heads": "32", "num_key_value_heads": "8", "vocab_size": "32000", "max_position_embeddings": "131072",
	"rms_norm_eps": "1e-6", "sliding_window": "4096", "bos_token_id": "1", "eos_token_id": "2"}

// slideAll gives every layer a window if there is one, where the configuration names no kinds.
func slideAll(s *family.Spec) {
	if s.Window > 0 && len(s.Mixers) == 0 {
		s.Alternate(s.Layers+1, nil)
	}
}
