package robots

import (
	"encoding/json"
	"fmt"

	"github.com/lfactor/lfactor/configs/hf"
)

// dreamFile is how files of DreamZero are read and written: a flat file with the names of its code, and
// names of this program's where it has none.
func dreamFile() hf.Family {
	return hf.Family{Class: "dreamzero", Diffusers: true, Has: []string{"latent_patch", "in_channels",
		"state_size", "chunk_size", "views", "view_height", "view_width", "text_dim", "freq_dim", "text_rows",
		"cross_attn_norm", "image_dim", "image_rows", "video_channels", "video_patch", "video_scale",
		"video_frames", "video_every", "video_shift", "acting_shift", "acting_steps", "video_loss", "action_loss",
		"block_frames", "block_window", "adapter_width", "video_given", "block_guidance", "told_as", "view_form"},
		Fixed: map[string]string{"hidden_act": `"gelu_pytorch_tanh"`}, Absent: map[string]string{
			"latent_patch": "[1, 1, 1]", "video_patch": "[1, 2, 2]", "rms_norm_eps": "1e-6", "acting_steps": "16",
			"image_dim": "1280"}, Alias: map[string]string{"patch_size": "video_patch", "dim": "hidden_size",
			"ffn_dim": "intermediate_size", "num_heads": "num_attention_heads", "num_layers": "num_hidden_layers",
			"eps": "rms_norm_eps", "action_dim": "in_channels", "max_state_dim": "state_size",
			"text_len": "text_rows", "out_dim": "video_channels", "num_frames": "video_frames",
			"num_frame_per_block": "block_frames", "dit_action_state_hidden_size": "adapter_width",
			"sigma_shift": "acting_shift", "num_inference_steps": "acting_steps", "cfg_scale": "block_guidance"},
		Omit: []string{"latent_patch"}, Only: map[string]string{"n_obs_steps": "1"},
		Idle:    append([]string{"wan_pretrained_path", "cameras", dreamImage}, stepless(lerobotIdle)...),
		Prepare: dreamViews, Write: func(m hf.Values, out map[string]any) {
			for _, key := range []string{"_class_name", "_diffusers_version", "num_attention_heads"} {
				delete(out, key)
			}
			out["type"] = m.Text("model_type")
		}}
}

// dreamViews counts the views that a file names among its features, where it does not say how many there are.
func dreamViews(raw hf.Raw) {
	var in map[string]feature
	if raw["views"] != nil || json.Unmarshal(raw["input_features"], &in) != nil {
		return
	}
	views := 0
	for _, f := range in {
		if f.Type == "VISUAL" {
			views++
		}
	}
	if views > 0 {
		raw["views"] = json.RawMessage(fmt.Sprint(views))
	}
}
