package robots

import (
	"encoding/json"
	"fmt"

	"github.com/lfactor/lfactor/configs/hf"
)

// piOnly are keys of lerobot's files of Pi0.5 that have one value here, and are written.
var piOnly = map[string]string{"n_obs_steps": "1", "use_visual_memory": "false",
	"use_proprioceptive_memory": "false", "time_sampling_beta_alpha": "1.5", "time_sampling_beta_beta": "1",
	"time_sampling_scale": "0.999", "time_sampling_offset": "0.001", "min_period": "0.004", "max_period": "4",
	"use_relative_actions": "false", "rtc_training_max_delay": "0", "tokenizer_max_length": "200"}

// piFamily is how lerobot's files of Pi0 and Pi0.5 are read and written.
func piFamily(class string) hf.Family {
	return hf.Family{Class: class, Diffusers: true, Has: []string{"latent_patch", "in_channels",
		"expert_hidden_size", "expert_intermediate_size", "chunk_size", "views", "view_size", "view_patch",
		"view_hidden_size", "view_intermediate_size", "view_heads", "view_layers"}, Fixed: map[string]string{
		"hidden_act": `"gelu_pytorch_tanh"`}, Absent: map[string]string{"hidden_size": "2048",
		"num_hidden_layers": "18", "num_attention_heads": "8", "num_key_value_heads": "1", "head_dim": "256",
		"intermediate_size": "16384", "vocab_size": "257152", "rms_norm_eps": "1e-6", "in_channels": "32",
		"latent_patch": "[1, 1, 1]"}, Alias: map[string]string{"max_action_dim": "in_channels"},
		Omit: []string{"latent_patch"}, Only: piOnly, Idle: append([]string{"paligemma_variant",
			"action_expert_variant", "image_resolution"}, lerobotIdle...), Prepare: piVariants, Write: writePi}
}

// gemma is a variant of Gemma by which lerobot's files name the sizes of a language model or of an expert. All
// have 18 layers, and 8 heads of 256 with keys and values of one.
type gemma struct {
	name         string
	width, inter int
}

var gemmas = []gemma{{"gemma_2b", 2048, 16384}, {"gemma_300m", 1024, 4096}}

// piVariants makes sizes of the names that lerobot's file has. What it does not name is PaliGemma's.
func piVariants(raw hf.Raw) {
	viewed(raw)
	for _, key := range []string{"state_size", "view_height", "view_width"} { // Pi0.5 is told states in words
		delete(raw, key)
	}
	set := func(key string, n int) {
		if raw[key] == nil {
			raw[key] = json.RawMessage(fmt.Sprint(n))
		}
	}
	for _, part := range []struct{ key, width, inter string }{{"paligemma_variant", "hidden_size", "intermediate_size"},
		{"action_expert_variant", "expert_hidden_size", "expert_intermediate_size"}} {
		for _, g := range gemmas {
			if string(raw[part.key]) == fmt.Sprintf("%q", g.name) {
				set(part.width, g.width)
				set(part.inter, g.inter)
			}
		}
		if raw[part.width] == nil && raw[part.key] != nil { // another name is no number, and is refused as one
			raw[part.width] = raw[part.key]
		}
	}
	var size []int
	if json.Unmarshal(raw["image_resolution"], &size) == nil && len(size) == 2 && size[0] == size[1] {
		set("view_size", size[0])
	} else if raw["image_resolution"] != nil {
		raw["view_size"] = raw["image_resolution"] // which is refused
	}
}

// writePi is the inverse of piVariants: sizes have names where lerobot has them, and are this program's own keys
// elsewhere, which lerobot does not read.
func writePi(m hf.Values, out map[string]any) {
	delete(out, "_class_name")
	delete(out, "_diffusers_version")
	out["type"] = m.Text("model_type")
	sizes := []string{"hidden_size", "num_hidden_layers", "num_key_value_heads", "head_dim", "intermediate_size",
		"vocab_size", "rms_norm_eps"}
	for _, key := range sizes {
		out[key] = m[key]
	}
	named := map[string]any{}
	for _, g := range gemmas {
		if m.Int("hidden_size") == g.width && m.Int("intermediate_size") == g.inter {
			named["paligemma_variant"] = g.name
		}
		if m.Int("expert_hidden_size") == g.width && m.Int("expert_intermediate_size") == g.inter {
			named["action_expert_variant"] = g.name
		}
	}
	for key, n := range map[string]int{"num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1,
		"head_dim": 256, "vocab_size": 257152, "view_patch": 14, "view_hidden_size": 1152,
		"view_intermediate_size": 4304, "view_heads": 16, "view_layers": 27} {
		if m.Int(key) != n || len(named) < 2 || m["rms_norm_eps"] != 1e-6 {
			return
		}
		sizes = append(sizes, key)
	}
	for _, key := range append(sizes, "expert_hidden_size", "expert_intermediate_size", "view_size", "views") {
		delete(out, key)
	}
	side := m.Int("view_size")
	out["image_resolution"] = []int{side, side}
	for key, name := range named {
		out[key] = name
	}
}
