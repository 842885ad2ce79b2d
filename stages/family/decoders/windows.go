package decoders

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// windowKeys are what Qwen's files say of windows.
type windowKeys struct {
	Use    bool     `key:"use_sliding_window"`
	Window *int     `key:"sliding_window" min:"0"` // nil for null, which is none
	Most   int      `key:"max_window_layers" min:"0"`
	Layers int      `key:"num_hidden_layers"`
	Types  []string `key:"layer_types"`
}

// enter says which layers have a window.
func (k windowKeys) enter(d *hf.Decoder, slides func(layer, most int) bool) {
	if !k.Use || k.Window == nil {
		d.Set("sliding_window", "0")
		if slides != nil {
			allFull(d, k.Types, k.Layers)
		}
		return
	}
	d.Set("sliding_window", fmt.Sprint(*k.Window)) // transformers' own where the file says nothing
	if slides == nil || k.Types != nil {
		return
	}
	kinds := make([]string, k.Layers)
	for i := range kinds {
		if kinds[i] = "full_attention"; slides(i, k.Most) {
			kinds[i] = "sliding_attention"
		}
	}
	d.Set("layer_types", family.JSONOf(kinds))
}

// allFull leaves a list of kinds away that says what all layers have anyway, and reports whether it does.
func allFull(d *hf.Decoder, kinds []string, layers int) bool {
	if len(kinds) != layers || slices.ContainsFunc(kinds, func(k string) bool { return k != "full_attention" }) {
		return false
	}
	d.Set("layer_types", "[]")
	return true
}

// fromOn has windows in layers from max_window_layers on, as Qwen2Config and Qwen3Config have them.
func fromOn(layer, most int) bool { return layer >= most }

// everyOther has windows in every other of the first max_window_layers layers, as Qwen2MoeConfig has them.
func everyOther(layer, most int) bool { return layer%2 == 0 && layer < most }

// QwenTokens are the ids of image tokens in the vocabulary of Qwen 2 and 3.
var QwenTokens = map[string]string{"image_token_id": "151655", "video_token_id": "151656",
	"vision_start_token_id": "151652"}

// cohere2File is what files say of layers without a window.
type cohere2File struct {
	Pattern int      `key:"sliding_window_pattern" min:"1"`
	Layers  int      `key:"num_hidden_layers"`
	Types   []string `key:"layer_types"`
}

// enter writes out the kind of each layer for files that only give the pattern. A pattern of 4 is
// what layers have without being told.
func (k cohere2File) enter(d *hf.Decoder) {
	if k.Types != nil || k.Pattern == 4 {
		return
	}
	s := family.Spec{Layers: k.Layers}
	s.Alternate(k.Pattern, nil)
	d.Set("layer_types", family.JSONOf(s.Mixers))
}

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
