package family

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
)

// Qwen 1.5, 2 and 2.5: Llama with biases on query, key and value.
var _ = Register(Family{ModelType: "qwen2", Paper: "2407.10671, 2412.15115",
	HF: windowed(hf.Family{Class: "Qwen2ForCausalLM", Fixed: map[string]string{"attention_bias": "true"},
		Omit: []string{"attention_bias"}, Absent: qwenDefaults}),
	Loong: []loong.Decoder{{Class: "QwenConfig", Tokens: qwenTokens},
		{Class: "Qwen2Config", Tokens: qwenTokens}}})

// qwenDefaults are transformers' of Qwen2Config and Qwen3Config.
var qwenDefaults = map[string]string{"hidden_size": "4096", "intermediate_size": "22016",
	"num_hidden_layers": "32", "num_attention_heads": "32", "num_key_value_heads": "32",
	"vocab_size":              "151936",
	"max_position_embeddings": "32768", "rms_norm_eps": "1e-6"}

// with is a map with one more entry.
func with(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	m[key] = value
	return m
}

// windowed adds Qwen's windows: sliding_window counts where use_sliding_window is true, in layers from
// max_window_layers on.
func windowed(f hf.Family) hf.Family {
	f.Has = append(f.Has, "sliding_window", "layer_types")
	f.Idle = append(f.Idle, "use_sliding_window", "max_window_layers")
	f.Read = qwenWindows
	f.Write = func(m hf.Values, out map[string]any) {
		if m.Int("sliding_window") > 0 {
			out["use_sliding_window"] = true
		}
	}
	return f
}

// qwenWindows enters which layers have a window, as Qwen2Config does.
func qwenWindows(d *hf.Decoder, raw map[string]json.RawMessage) {
	var use bool
	var window *int
	first, layers, types := 28, 32, []string(nil)
	values := map[string]any{"use_sliding_window": &use, "sliding_window": &window,
		"max_window_layers": &first, "num_hidden_layers": &layers, "layer_types": &types}
	for _, key := range names(values) {
		if raw[key] != nil && json.Unmarshal(raw[key], values[key]) != nil {
			d.Sink.Fail(d.O, key, string(raw[key])+" is no value of it", "")
			return
		}
	}
	slides := func(kind string) bool { return kind != "full_attention" }
	switch {
	case !use || window == nil:
		d.Set("sliding_window", "0")
		if len(types) == layers && !slices.ContainsFunc(types, slides) {
			d.Set("layer_types", "[]") // what all layers have anyway
		}
	case types == nil:
		for i := range layers {
			kind := "full_attention"
			if i >= first {
				kind = "sliding_attention"
			}
			types = append(types, kind)
		}
		text, err := json.Marshal(types)
		if err != nil {
			panic(fmt.Sprintf("family: words cannot be JSON: %v", err))
		}
		d.Set("layer_types", string(text))
	}
}
