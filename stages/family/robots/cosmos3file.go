package robots

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs/hf"
)

// cosmosFile is how diffusers' files of Cosmos3 are read and written. What a policy is beside its
// transformer is keys of this program's own, which diffusers passes over.
func cosmosFile() hf.Family {
	return hf.Family{Class: cosmosType, Diffusers: true, Has: []string{"latent_patch", "in_channels", "state_size",
		"chunk_size", "views", "view_form", "view_height", "view_width", "embodiments", "video_channels",
		"video_patch", "video_scale", "video_frames", "video_every", "video_shift", "acting_shift",
		"acting_steps", "video_loss", "action_loss", "rope_axes", "position_margin", "robot_rate", "base_rate"},
		Fixed: map[string]string{"hidden_act": `"silu"`}, Absent: map[string]string{"latent_patch": "[1, 1, 1]",
			"in_channels": "64", "state_size": "64", "chunk_size": "32", "views": "2", "view_height": "256",
			"view_width": "320", "embodiments": "32", "video_channels": "48", "video_scale": "[4, 16, 16]",
			"video_every": "1", "video_shift": "5", "acting_shift": "5", "acting_steps": "35",
			"action_loss": "10", "num_attention_heads": "32", "num_key_value_heads": "8", "head_dim": "128",
			"hidden_size": "4096", "num_hidden_layers": "36", "intermediate_size": "12288", "rms_norm_eps": "1e-6",
			"vocab_size": "151936", "rope_theta": "5e6"}, Alias: map[string]string{"action_dim": "in_channels",
			"num_embodiment_domains": "embodiments", "latent_channel": "video_channels", "base_fps": "base_rate",
			"rope_axes_dim": "rope_axes", "unified_3d_mrope_temporal_modality_margin": "position_margin"},
		Omit: []string{"latent_patch"}, Only: map[string]string{"attention_bias": "false",
			"enable_fps_modulation": "true", "unified_3d_mrope_reset_spatial_ids": "true",
			"action_gen": "true", "sound_gen": "false", "timestep_scale": "0.001", "qk_norm_for_text": "true",
			"use_und_k_norm_for_gen": "false"}, Idle: slices.Concat([]string{"attention_dropout", "dtype",
			"sound_dim", "sound_latent_fps", "rope_scaling", "patch_latent_dim", "encoders", "cameras"}, lerobotIdle),
		Prepare: cosmosSizes, Read: cosmosRest, Write: writeCosmos}
}

// cosmosSizes makes keys of what diffusers' file has otherwise. What cannot be read so stays, for cosmosRest.
func cosmosSizes(raw hf.Raw) {
	side := 2
	if raw["latent_patch_size"] == nil || json.Unmarshal(raw["latent_patch_size"], &side) == nil && side > 0 {
		if raw["video_patch"] == nil {
			raw["video_patch"] = json.RawMessage(fmt.Sprintf("[1, %d, %d]", side, side))
		}
		delete(raw, "latent_patch_size")
	}
	var scaling struct {
		Sections json.RawMessage `json:"mrope_section"`
	}
	_ = json.Unmarshal(raw["rope_scaling"], &scaling) // cosmosRest says of what is no mapping
	if v := raw["rope_axes_dim"]; (v == nil || string(v) == "null") && raw["rope_axes"] == nil {
		delete(raw, "rope_axes_dim")
		if raw["rope_axes"] = scaling.Sections; scaling.Sections == nil {
			raw["rope_axes"] = json.RawMessage("[24, 20, 20]")
		}
	}
	if v := raw["action_dim"]; raw["state_size"] == nil && v != nil {
		raw["state_size"] = v
	}
	chunk, every := 32, 1
	if raw["chunk_size"] != nil && json.Unmarshal(raw["chunk_size"], &chunk) != nil ||
		raw["video_every"] != nil && json.Unmarshal(raw["video_every"], &every) != nil || every < 1 {
		return
	}
	if raw["video_frames"] == nil {
		raw["video_frames"] = json.RawMessage(fmt.Sprint(chunk/every + 1))
	}
}

// cosmosRest refuses what cosmosSizes could make nothing of, and what does not follow from other keys.
func cosmosRest(d *hf.Decoder, raw map[string]json.RawMessage) {
	leftover(d, raw, map[string]string{"latent_patch_size": "is no number of rows and columns"})
	var scaling map[string]json.RawMessage
	if v := raw["rope_scaling"]; v != nil && json.Unmarshal(v, &scaling) != nil {
		d.Fail("rope_scaling", fmt.Sprintf("%s, want a mapping", v), "")
	}
	mapping{[]string{"mrope_section"}, map[string]string{"rope_type": `"default"`, "type": `"default"`,
		"mrope_interleaved": "true"}, []string{"rope_theta"}}.hold(d, raw, "rope_scaling")
}

// writeCosmos is the inverse of cosmosSizes.
func writeCosmos(m hf.Values, out map[string]any) {
	patch, _ := m["video_patch"].([]int)
	if len(patch) == 3 && patch[1] == patch[2] {
		delete(out, "video_patch")
		out["latent_patch_size"] = patch[1]
		out["patch_latent_dim"] = m.Int("video_channels") * patch[1] * patch[2]
	}
	if scale, ok := m["video_scale"].([]int); ok && slices.Equal(scale, []int{4, 16, 16}) {
		delete(out, "video_scale")
	}
	out["action_gen"] = true
	for from, key := range map[string]string{"in_channels": "action_dim", "embodiments": "num_embodiment_domains"} {
		out[key] = m[from]
		delete(out, from)
	}
	delete(out, "state_size")
	for _, key := range []string{"hidden_size", "head_dim", "num_key_value_heads", "vocab_size", "rope_theta",
		"num_hidden_layers", "intermediate_size", "num_attention_heads", "rms_norm_eps"} {
		out[key] = m[key]
	}
}
