package decoders

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/family"
)

// Qwen 1.5, 2 and 2.5: Llama with biases on query, key and value.
var _ = family.Register(family.Family{ModelType: "qwen2", Paper: "2407.10671, 2412.15115",
	HF: windowed(hf.Family{Class: "Qwen2ForCausalLM", Fixed: map[string]string{"attention_bias": "true"},
		Omit: []string{"attention_bias"}, Absent: qwenDefaults}, fromOn),
	Loong: []loong.Decoder{{Class: "QwenConfig", Tokens: QwenTokens}, {Class: "Qwen2Config", Tokens: QwenTokens}}})

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

// windowed adds Qwen's windows: sliding_window counts where use_sliding_window is true, in layers of which
// slides holds: a layer's place, and max_window_layers. Where it is nil, all layers have the window, and
// files have no layer_types.
func windowed(f hf.Family, slides func(layer, most int) bool) hf.Family {
	f.Has = append(f.Has, "sliding_window")
	if slides != nil {
		f.Has = append(f.Has, "layer_types")
	}
	window := 4096
	f.Own = append(f.Own, hf.Keys(windowKeys{Window: &window, Most: 28,
		Layers: family.WholeOf(f.Absent["num_hidden_layers"])},
		func(k windowKeys, d *hf.Decoder) { k.enter(d, slides) }))
	f.Write = func(m hf.Values, out map[string]any) {
		if m.Int("sliding_window") > 0 {
			out["use_sliding_window"] = true
		}
	}
	return f
}

// windowsFrom has windows in layers from max_window_layers on, which most stands for, and in no layer where
// sliding_window is null.
func windowsFrom(most int, f hf.Family) hf.Family {
	f.Has = append(f.Has, "sliding_window", "layer_types")
	window := 4096
	f.Own = append(f.Own, hf.Keys(windowKeys{Window: &window, Most: most,
		Layers: family.WholeOf(f.Absent["num_hidden_layers"])}, func(k windowKeys, d *hf.Decoder) {
		k.Use = true
		k.enter(d, fromOn)
	}))
	f.Null = append(f.Null, "sliding_window")
	return f
}

// fromOn has windows in layers from max_window_layers on, as Qwen2Config and Qwen3Config have them.
func fromOn(layer, most int) bool { return layer >= most }

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

// QwenTokens are the ids of image tokens in the vocabulary of Qwen 2 and 3.
var QwenTokens = map[string]string{"image_token_id": "151655", "video_token_id": "151656",
	"vision_start_token_id": "151652"}
