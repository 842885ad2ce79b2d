package robots

import (
	"encoding/json"
	"fmt"

	"github.com/lfactor/lfactor/configs/hf"
)

// grootSizes makes sizes of what lerobot's file has.
func grootSizes(raw hf.Raw) {
	viewed(raw)
	for _, key := range []string{"state_size", "view_height", "view_width",
		"in_channels"} { // there is room for more
		delete(raw, key)
	}
	var size []int
	if json.Unmarshal(raw["image_size"], &size) == nil && len(size) == 2 && size[0] == size[1] &&
		raw["view_size"] == nil {
		raw["view_size"] = json.RawMessage(fmt.Sprint(size[0]))
	}
	chunk := 0
	if json.Unmarshal(raw["chunk_size"], &chunk) == nil && chunk > 16 && raw["dit_width"] == nil {
		raw["chunk_size"] = json.RawMessage("16") // lerobot cuts it to the published model's
	}
}

// writeGroot is the inverse of grootSizes: sizes that are not the published ones are keys of this program's own.
func writeGroot(m hf.Values, out map[string]any) {
	for _, key := range []string{"_class_name", "_diffusers_version", "in_channels", "state_size"} {
		delete(out, key)
	}
	out["type"] = "groot"
	for from, to := range grootFile().Alias {
		out[from] = m[to]
	}
	usual := map[string]int{"hidden_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 16,
		"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 6144, "vocab_size": 151680, "view_patch": 14,
		"view_hidden_size": 1152, "view_intermediate_size": 4304, "view_heads": 16, "view_layers": 27,
		"embodiments": 32, "image_token": 151669, "future_tokens": 32, "dit_width": 1536, "dit_heads": 32,
		"dit_layers": 16, "dit_output": 1024, "mixer_heads": 32, "mixer_layers": 4, "action_positions": 1024,
		"chunk_size": 16}
	same := m["rms_norm_eps"] == 1e-6 && m["rope_theta"] == 1e6
	for key, n := range usual {
		same = same && m.Int(key) == n
		out[key] = m[key]
	}
	out["n_action_steps"], out["rms_norm_eps"], out["rope_theta"] = m["chunk_size"], m["rms_norm_eps"], m["rope_theta"]
	if !same {
		return
	}
	delete(usual, "chunk_size")
	for key := range usual {
		delete(out, key)
	}
	for _, key := range []string{"rms_norm_eps", "rope_theta", "views", "view_size"} {
		delete(out, key)
	}
	side := m.Int("view_size")
	out["image_size"] = []int{side, side}
}
