package robots

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/stages/family/denoisers"
)

// lingbotFile is how lerobot's files of LingBot-VA are read and written.
func lingbotFile() hf.Family {
	return hf.Family{Class: "lingbot_va", Diffusers: true, Has: []string{"latent_patch", "in_channels",
		"chunk_size", "views", "view_height", "view_width", "text_dim", "freq_dim", "text_rows", "cross_attn_norm",
		"video_channels", "video_patch", "video_scale", "video_frames", "video_every", "video_shift",
		"action_shift", "acting_shift", "acting_steps", "video_loss", "action_loss", "clip_steps", "clip_guidance"},
		Fixed: map[string]string{"hidden_act": `"gelu_pytorch_tanh"`}, Absent: map[string]string{
			"latent_patch": "[1, 1, 1]", "video_patch": "[1, 2, 2]", "text_rows": "512", "num_attention_heads": "24",
			"head_dim": "128", "num_hidden_layers": "30", "intermediate_size": "14336", "rms_norm_eps": "1e-6",
			"video_scale": "[4, 16, 16]", "acting_steps": "50"}, Alias: map[string]string{"patch_size": "video_patch",
			"attention_head_dim": "head_dim", "ffn_dim": "intermediate_size", "num_layers": "num_hidden_layers",
			"eps": "rms_norm_eps", "max_sequence_length": "text_rows", "snr_shift": "video_shift",
			"height": "view_height", "width": "view_width", "num_inference_steps": "clip_steps",
			"guidance_scale": "clip_guidance", "action_num_inference_steps": "acting_steps"},
		Omit: []string{"latent_patch"}, Only: map[string]string{"n_obs_steps": "1", "image_hflip": "false",
			"video_exec_step": "-1", "camera_layout": `"width_concat"`, "action_guidance_scale": "1"},
		Idle: slices.Concat([]string{"rope_max_seq_len", "attn_mode", "wan_pretrained_path",
			"text_encoder_device", "attn_window", "save_predicted_video"}, stepless(lerobotIdle)),
		Own: []hf.Own{hf.Keys(denoisers.Heads{Heads: 24, Dim: 128}, denoisers.Heads.Enter)}, Prepare: lingSizes,
		Read: lingRest, Write: writeLing}
}

// lingRest refuses what lingSizes could make nothing of.
func lingRest(d *hf.Decoder, raw map[string]json.RawMessage) {
	const room = "is not what this model can have: two frames of latents or more, an action or more for " +
		"each, as many channels out as in, cameras, and numbers of actions that are its first"
	why := map[string]string{}
	for _, key := range lingShapes {
		why[key] = room
	}
	leftover(d, raw, why)
}

// lingShapes are keys of which lingSizes makes others.
var lingShapes = []string{"frame_chunk_size", "action_per_frame", "out_channels", "action_dim", "obs_cam_keys",
	"used_action_channel_ids"}

// lingSizes makes keys of what lerobot's file has of its frames, its actions and its cameras. What cannot be
// read so stays, for lingRest.
func lingSizes(raw hf.Raw) {
	bad := func(key string) { // alone is left for lingRest, or for whoever reads it as it is
		for _, other := range lingShapes {
			if other != key {
				delete(raw, other)
			}
		}
	}
	n, culprit := lingCounts(raw)
	if culprit != "" {
		bad(culprit)
		return
	}
	frames, each := n["frame_chunk_size"], n["action_per_frame"]
	set := func(key string, n int) {
		if raw[key] == nil {
			raw[key] = json.RawMessage(fmt.Sprint(n))
		}
	}
	scale := []int{4, 16, 16}
	if raw["video_scale"] != nil && (json.Unmarshal(raw["video_scale"], &scale) != nil || len(scale) != 3) {
		bad("video_scale")
		return
	}
	set("chunk_size", frames*each)
	set("video_frames", (frames-1)*scale[0]+1)
	set("video_every", max(1, each/4))
	cameras, used := []string{"", ""}, []int{}
	if named := raw["obs_cam_keys"]; named != nil && json.Unmarshal(named, &cameras) != nil || len(cameras) == 0 {
		bad("obs_cam_keys")
		return
	}
	if ids := raw["used_action_channel_ids"]; ids != nil {
		if json.Unmarshal(ids, &used) != nil || len(used) > n["action_dim"] {
			bad("used_action_channel_ids")
			return
		}
		for i, id := range used { // numbers of an action are the model's first ones
			if i != id {
				bad("used_action_channel_ids")
				return
			}
		}
	}
	raw["in_channels"] = json.RawMessage(fmt.Sprint(n["action_dim"]))
	raw["video_channels"] = json.RawMessage(fmt.Sprint(n["in_channels"]))
	set("views", len(cameras))
	for key, usual := range map[string]string{"height": "128", "width": "128", "snr_shift": "5"} {
		if raw[key] == nil {
			raw[key] = json.RawMessage(usual)
		}
	}
	shift := raw["action_snr_shift"]
	if shift == nil {
		shift = json.RawMessage("0.05")
	}
	for _, key := range []string{"action_shift", "acting_shift"} {
		if raw[key] == nil {
			raw[key] = shift
		}
	}
	for _, key := range append([]string{"action_snr_shift"}, lingShapes...) {
		delete(raw, key)
	}
}

// lingCounts are numbers of lerobot's file, and the first key that is none that can be, or that disagrees.
func lingCounts(raw hf.Raw) (n map[string]int, culprit string) {
	n = map[string]int{"frame_chunk_size": 4, "action_per_frame": 4, "in_channels": 48, "out_channels": 48,
		"action_dim": 30}
	for _, key := range source.SortedKeys(n) {
		least, to := 1, n[key]
		if key == "frame_chunk_size" {
			least = 2
		}
		if raw[key] != nil && json.Unmarshal(raw[key], &to) != nil || to < least {
			return nil, key
		}
		n[key] = to
	}
	if n["in_channels"] != n["out_channels"] {
		return nil, "out_channels"
	}
	return n, ""
}

// writeLing is the inverse of lingSizes.
func writeLing(m hf.Values, out map[string]any) {
	for _, key := range []string{"_class_name", "_diffusers_version", "chunk_size", "video_frames",
		"video_channels", "action_shift", "hidden_size"} {
		delete(out, key)
	}
	frames := 1
	if scale, ok := m["video_scale"].([]int); ok {
		frames = (m.Int("video_frames")-1)/scale[0] + 1
		if slices.Equal(scale, []int{4, 16, 16}) {
			delete(out, "video_scale")
		}
	}
	each := m.Int("chunk_size") / frames
	for key, usual := range map[string]any{"acting_shift": m["action_shift"], "video_loss": 1.0,
		"action_loss": 1.0, "video_every": max(1, each/4)} { // which lerobot's files do not say
		if m[key] == usual {
			delete(out, key)
		}
	}
	out["type"], out["frame_chunk_size"], out["action_per_frame"] = m.Text("model_type"), frames, each
	out["in_channels"], out["out_channels"] = m["video_channels"], m["video_channels"]
	out["action_dim"], out["action_snr_shift"] = m["in_channels"], m["action_shift"]
}
