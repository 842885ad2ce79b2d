package decoders

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// SmolLM 3: Llama without positions in every fourth layer (arXiv:2501.18795).
var _ = family.Register(family.Family{ModelType: "smollm3", Paper: "2501.18795",
	HF: hf.Family{Class: "SmolLM3ForCausalLM", OutBias: true, Has: []string{"no_rope_layers", "attention_bias",
		"mlp_bias", "sliding_window", "layer_types"}, Absent: map[string]string{"hidden_size": "2048",
		"intermediate_size": "11008", "num_hidden_layers": "36", "num_attention_heads": "16",
		"num_key_value_heads": "4", "vocab_size": "128256", "max_position_embeddings": "32768", "rms_norm_eps": "1e-6",
		"rope_theta": "2000000", "tie_word_embeddings": "true", "bos_token_id": "128000", "eos_token_id": "128001"},
		Omit: []string{"head_dim"}, Null: []string{"sliding_window"}, Write: func(m hf.Values, out map[string]any) {
			if m.Int("sliding_window") > 0 {
				out["use_sliding_window"] = true
			}
		}, Own: []hf.Own{
			hf.Keys(smolKeys{Every: 4, Layers: 36}, smolKeys.enter)}}, Spec: func(c configs.Model, s *family.Spec) {
		s.NoRope = func(i int) bool {
			if turns := family.Scales.Of(c).NoRope; i < len(turns) {
				return turns[i] == 0
			}
			return (i+1)%4 == 0
		}
	}})

// smolKeys are what files say of layers without positions and with windows.
type smolKeys struct {
	Every  int      `key:"no_rope_layer_interval" min:"1"`
	Layers int      `key:"num_hidden_layers"`
	Turns  []int    `key:"no_rope_layers"`
	Use    bool     `key:"use_sliding_window"`
	Window *int     `key:"sliding_window" min:"0"`
	Types  []string `key:"layer_types"`
}

// InTurns says whether queries and keys of a layer turn.
func (k smolKeys) turns(layer int) bool {
	if layer < len(k.Turns) {
		return k.Turns[layer] != 0
	}
	return (layer+1)%k.Every != 0
}

// enter says which layers have no positions, and a window: by default those without positions.
func (k smolKeys) enter(d *hf.Decoder) {
	turns, kinds, slides := make([]int, k.Layers), make([]string, k.Layers), false
	for i := range k.Layers {
		kinds[i] = "full_attention"
		switch {
		case k.turns(i):
			turns[i] = 1
		case k.Use && k.Window != nil:
			kinds[i], slides = "sliding_attention", true
		}
	}
	if k.Turns == nil && k.Every != 4 {
		d.Set("no_rope_layers", family.JSONOf(turns))
	}
	switch {
	case k.Types == nil && slides:
		d.Set("layer_types", family.JSONOf(kinds))
	case k.Types == nil || allFull(d, k.Types, k.Layers):
		d.Set("sliding_window", "0")
	}
}
