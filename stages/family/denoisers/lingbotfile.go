package denoisers

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs/hf"
)

// lingbotFile is how lerobot's files of LingBot-VA are read and written.
func lingbotFile() hf.Family {
	return hf.Family{Class: "lingbot_va", Diffusers: true,
		Has: []string{"latent_patch", "in_channels", "chunk_size", "views", "view_height", "view_width",
			"text_dim", "freq_dim", "text_rows", "cross_attn_norm", "video_channels", "video_patch",
			"video_scale", "video_frames", "video_every", "video_shift", "action_shift", "acting_shift",
			"acting_steps", "video_loss", "action_loss", "clip_steps", "clip_guidance"},
		Fixed: map[string]string{"hidden_act": `"gelu_pytorch_tanh"`},
		Absent: map[string]string{"latent_patch": "[1, 1, 1]", "video_patch": "[1, 2, 2]", "text_rows": "512",
			"num_attention_heads": "24", "head_dim": "128", "num_hidden_layers": "30",
			"intermediate_size": "14336", "rms_norm_eps": "1e-6", "video_scale": "[4, 16, 16]",
			"acting_steps": "50"},
		Alias: map[string]string{"patch_size": "video_patch", "attention_head_dim": "head_dim",
			"ffn_dim": "intermediate_size", "num_layers": "num_hidden_layers", "eps": "rms_norm_eps",
			"max_sequence_length": "text_rows", "snr_shift": "video_shift", "height": "view_height",
			"width": "view_width", "num_inference_steps": "clip_steps", "guidance_scale": "clip_guidance",
			"action_num_inference_steps": "acting_steps"},
		Omit: []string{"latent_patch"},
		Only: map[string]string{"n_obs_steps": "1", "image_hflip": "false", "video_exec_step": "-1",
			"camera_layout": `"width_concat"`, "action_guidance_scale": "1"},
		Idle: slices.Concat([]string{"rope_max_seq_len", "attn_mode", "wan_pretrained_path",
			"text_encoder_device", "attn_window", "save_predicted_video"}, stepless(lerobotIdle)),
		Own:     []hf.Own{hf.Keys(width{Heads: 24, Dim: 128}, width.enter)},
		Prepare: lingSizes, Read: lingRest, Write: writeLing}
}

// lingRest refuses what lingSizes could make nothing of.
func lingRest(d *hf.Decoder, raw map[string]json.RawMessage) {
	const room = "is not what this model can have: two frames of latents or more, an action or more for " +
		"each, as many channels out as in, cameras, and numbers of actions that are its first"
	leftover(d, raw, map[string]string{"frame_chunk_size": room, "action_per_frame": room,
		"out_channels": room, "obs_cam_keys": room, "used_action_channel_ids": room})
}

// lingSizes makes keys of what lerobot's file has of its frames, its actions and its cameras. What cannot be
// read so stays, for lingRest.
func lingSizes(raw hf.Raw) {
	number := func(key string, usual int) int {
		n := usual
		if raw[key] != nil && json.Unmarshal(raw[key], &n) != nil {
			return 0
		}
		return n
	}
	frames, each := number("frame_chunk_size", 4), number("action_per_frame", 4)
	if frames < 2 || each < 1 {
		return
	}
	set := func(key string, n int) {
		if raw[key] == nil {
			raw[key] = json.RawMessage(fmt.Sprint(n))
		}
	}
	scale := []int{4, 16, 16}
	if raw["video_scale"] != nil && (json.Unmarshal(raw["video_scale"], &scale) != nil || len(scale) != 3) {
		return
	}
	set("chunk_size", frames*each)
	set("video_frames", (frames-1)*scale[0]+1)
	set("video_every", max(1, each/4))
	in, out, actions := number("in_channels", 48), number("out_channels", 48), number("action_dim", 30)
	if in != out {
		return
	}
	raw["in_channels"] = json.RawMessage(fmt.Sprint(actions))
	raw["video_channels"] = json.RawMessage(fmt.Sprint(in))
	cameras, used := []string{"", ""}, []int{}
	named := raw["obs_cam_keys"]
	if named != nil && json.Unmarshal(named, &cameras) != nil || len(cameras) == 0 {
		return
	}
	if raw["used_action_channel_ids"] != nil {
		if json.Unmarshal(raw["used_action_channel_ids"], &used) != nil {
			return
		}
		for i, id := range used { // numbers of an action are the model's first ones
			if i != id {
				return
			}
		}
	}
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
	for _, key := range []string{"frame_chunk_size", "action_per_frame", "out_channels", "action_dim",
		"obs_cam_keys", "used_action_channel_ids", "action_snr_shift"} {
		delete(raw, key)
	}
}

// writeLing is the inverse of lingSizes.
func writeLing(m hf.Values, out map[string]any) {
	for _, key := range []string{"_class_name", "_diffusers_version", "chunk_size", "video_frames",
		"video_every",
		"video_channels", "action_shift", "hidden_size"} {
		delete(out, key)
	}
	for key, usual := range map[string]any{"acting_shift": m["action_shift"], "video_loss": 1.0,
		"action_loss": 1.0} { // which lerobot's files do not say
		if m[key] == usual {
			delete(out, key)
		}
	}
	frames := 1
	if scale, ok := m["video_scale"].([]int); ok {
		frames = (m.Int("video_frames")-1)/scale[0] + 1
		if slices.Equal(scale, []int{4, 16, 16}) {
			delete(out, "video_scale")
		}
	}
	out["type"], out["frame_chunk_size"], out["action_per_frame"] = m.Text("model_type"), frames,
		m.Int("chunk_size")/frames
	out["in_channels"], out["out_channels"] = m["video_channels"], m["video_channels"]
	out["action_dim"], out["action_snr_shift"] = m["in_channels"], m["action_shift"]
}
