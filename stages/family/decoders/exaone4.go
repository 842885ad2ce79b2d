package decoders

import (
	"encoding/json"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// EXAONE 4: norms behind attention and MLP and none before, norms of each head's query and key; in the larger
// models three layers with a window to one that sees everything and has no positions.
var _ = family.Register(family.Family{ModelType: "exaone4", Paper: "2507.11407",
	HF: hf.Family{Class: "Exaone4ForCausalLM", Has: []string{"hidden_act", "sliding_window", "layer_types"},
		Null: []string{"sliding_window"}, Fixed: map[string]string{"qk_norm": "true"}, Omit: []string{"qk_norm",
			"attention_bias"}, Absent: map[string]string{"hidden_size": "4096", "intermediate_size": "16384",
			"num_hidden_layers": "32", "num_attention_heads": "32", "num_key_value_heads": "32", "vocab_size": "102400",
			"max_position_embeddings": "2048", "rms_norm_eps": "1e-5", "sliding_window": "4096", "bos_token_id": "0",
			"eos_token_id": "2"}, Own: []hf.Own{hf.Keys(exaone4File{Layers: 32}, exaone4File.enter)}},
	Spec: func(c configs.Model, s *family.Spec) {
		s.Norms = family.Norms{AfterMixer: "post_attention_layernorm", AfterMLP: "post_feedforward_layernorm"}
		if c.SlidingWindow == 0 {
			return
		}
		s.Alternate(4, c.LayerTypes)
		s.NoRope = func(layer int) bool { return s.Mixers[layer] == "full_attention" }
	}})

// exaone4File is what files say of layers without a window: each so many-th, where layer_types does not say;
// published files have a word beside layer_types.
type exaone4File struct {
	Pattern json.RawMessage `key:"sliding_window_pattern"`
	Layers  int             `key:"num_hidden_layers"`
	Types   []string        `key:"layer_types"`
}

// enter writes out the kind of each layer for files that only give the pattern. A pattern that is
// no whole number is refused with the way to say it.
func (k exaone4File) enter(d *hf.Decoder) {
	if k.Types != nil || k.Pattern == nil {
		return
	}
	every := 0
	if json.Unmarshal(k.Pattern, &every) != nil || every < 1 {
		d.Fail("sliding_window_pattern", hf.Compact(k.Pattern)+", want an integer of at least 1",
			"name the kind of each layer in layer_types")
		return
	}
	s := family.Spec{Layers: k.Layers}
	s.Alternate(every, nil)
	d.Set("layer_types", family.JSONOf(s.Mixers))
}
