package robots

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
)

// mapping is what a mapping of settings in NVIDIA's files of GR00T may have: keys that are read elsewhere,
// keys that have one value, as JSON, and keys that say nothing about the arithmetic.
type mapping struct {
	sizes []string
	only  map[string]string
	idle  []string
}

// The mappings of the transformer of actions, of the one before it, of the language model and of the tower.
// What is not said has NVIDIA's value.
var (
	ditMapping = mapping{[]string{"num_layers", "num_attention_heads", "attention_head_dim", "output_dim"},
		map[string]string{"interleave_self_attention": "true", "norm_type": `"ada_norm"`,
			"positional_embeddings": "null", "attention_bias": "true", "activation_fn": `"gelu-approximate"`,
			"norm_elementwise_affine": "false", "norm_eps": "1e-5"}, mixIdle}
	mixMapping = mapping{[]string{"num_layers", "num_attention_heads", "attention_head_dim"}, map[string]string{
		"positional_embeddings": "null", "attention_bias": "true", "activation_fn": `"gelu-approximate"`},
		slices.Concat(mixIdle, []string{"output_dim", "interleave_self_attention"})}
	mixIdle = []string{"dropout", "final_dropout", "num_embeds_ada_norm", "upcast_attention",
		"max_num_positional_embeddings", "compute_dtype"}
	eagleTextMapping = mapping{source.SortedKeys(eagleText), map[string]string{"attention_bias": "false",
		"hidden_act": `"silu"`, "rope_scaling": "null", "rope_parameters": "null", "use_sliding_window": "false",
		"layer_types": `"full_attention"`, "attention_dropout": "0", "model_type": `"qwen3"`},
		slices.Concat([]string{"num_hidden_layers", "bos_token_id", "eos_token_id", "pad_token_id",
			"max_position_embeddings", "max_window_layers", "sliding_window"}, eagleIdle)}
	eagleVisionMapping = mapping{append(source.SortedKeys(eagleVision), "num_patches"),
		map[string]string{"use_rope": "false", "use_windows_attn": "false", "num_channels": "3",
			"hidden_act": `"gelu_pytorch_tanh"`, "layer_norm_eps": "1e-6", "attention_dropout": "0"},
		slices.Concat([]string{"model_type", "full_attention_indexes", "window_size"}, eagleIdle)}
	eagleIdle = []string{"architectures", "initializer_range", "use_cache", "dtype", "torch_dtype",
		"transformers_version", "_name_or_path", "_attn_implementation", "_attn_implementation_autoset"}
)

// hold holds a file's mapping to its keys.
func (m mapping) hold(d *hf.Decoder, raw map[string]json.RawMessage, key string) {
	var have map[string]json.RawMessage
	_ = json.Unmarshal(raw[key], &have) // what is no mapping is refused by who reads its sizes
	for _, name := range source.SortedKeys(have) {
		value, only := hf.Compact(have[name]), m.only[name]
		switch {
		case only != "":
			if !onlyOf(only, value) {
				d.Fail(key+"."+name, fmt.Sprintf("%s, only %s can be trained", value, only), "")
			}
		case !slices.Contains(m.sizes, name) && !slices.Contains(m.idle, name):
			d.Sink.Note(fmt.Sprintf("%s: not read: %s.%s", d.O, key, name))
		}
	}
}

// onlyOf reports whether a value is the only one that there may be, or a list of it.
func onlyOf(only, value string) bool {
	var list []json.RawMessage
	if json.Unmarshal([]byte(value), &list) != nil || list == nil {
		return source.SameValue(only, value)
	}
	return !slices.ContainsFunc(list, func(v json.RawMessage) bool {
		return !source.SameValue(only, hf.Compact(v))
	})
}
