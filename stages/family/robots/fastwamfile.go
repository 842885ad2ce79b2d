package robots

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
)

// wamSizes are keys of the mappings of lerobot's files of FastWAM by ours, with what they are where a file
// does not say: of the clip's stream, of that of actions, of both schedules and of both losses.
var (
	wamVideoSizes = map[string][2]string{"hidden_dim": {"hidden_size", "3072"},
		"ffn_dim": {"intermediate_size", "14336"}, "num_heads": {"num_attention_heads", "24"},
		"attn_head_dim": {"head_dim", "128"}, "num_layers": {"num_hidden_layers", "30"},
		"in_dim": {"video_channels", "48"}, "patch_size": {"video_patch", "[1, 2, 2]"},
		"text_dim": {"text_dim", "4096"}, "freq_dim": {"freq_dim", "256"}, "eps": {"rms_norm_eps", "1e-6"}}
	wamActionSizes = map[string][2]string{"hidden_dim": {"expert_hidden_size", "1024"},
		"ffn_dim": {"expert_intermediate_size", "4096"}}
	wamScheduleSizes = map[string][2]string{"video_scheduler.train_shift": {"video_shift", "5"},
		"action_scheduler.train_shift": {"action_shift", "5"}, "action_scheduler.infer_shift": {"acting_shift", "5"},
		"loss.lambda_video": {"video_loss", "1"}, "loss.lambda_action": {"action_loss", "1"}}
	// keys of both streams that have to be alike, by ours
	wamAlike = map[string]string{"num_heads": "num_attention_heads", "attn_head_dim": "head_dim",
		"num_layers": "num_hidden_layers", "text_dim": "text_dim", "freq_dim": "freq_dim",
		"eps": "rms_norm_eps", "action_dim": "in_channels"}
)

// What else these mappings may have.
var (
	wamIdle       = []string{"use_gradient_checkpointing", "fp32_attention"}
	wamVideoHolds = mapping{append(source.SortedKeys(wamVideoSizes), "out_dim"),
		map[string]string{"seperated_timestep": "true", "video_attention_mask_mode": `"first_frame_causal"`,
			"action_conditioned": "false", "has_image_input": "false", "has_image_pos_emb": "false",
			"has_ref_conv": "false", "add_control_adapter": "false", "require_vae_embedding": "false",
			"require_clip_embedding": "false", "fuse_vae_embedding_in_latents": "true"},
		append([]string{"action_dim", "action_group_causal_mask_mode", "in_dim_control_adapter"}, wamIdle...)}
	wamActionHolds = mapping{slices.Concat(source.SortedKeys(wamActionSizes), source.SortedKeys(wamAlike)),
		nil, wamIdle}
	wamScheduleHolds = mapping{[]string{"train_shift", "infer_shift"},
		map[string]string{"num_train_timesteps": "1000"}, nil}
	wamLossHolds = mapping{[]string{"lambda_video", "lambda_action"}, nil, nil}
)

// wamNested are the keys of these mappings, in the order in which wamRest holds them.
var wamNested = []string{"video_dit_config", "action_dit_config", "video_scheduler", "action_scheduler", "loss"}

// fastwamFile is how lerobot's files of FastWAM are read and written.
func fastwamFile() hf.Family {
	return hf.Family{Class: "fastwam", Diffusers: true, Has: []string{"latent_patch", "in_channels", "state_size",
		"chunk_size", "views", "view_height", "view_width", "text_dim", "freq_dim", "text_rows", "expert_hidden_size",
		"expert_intermediate_size", "video_channels", "video_patch", "video_scale", "video_frames", "video_every",
		"video_shift", "action_shift", "acting_shift", "acting_steps", "video_loss", "action_loss"},
		Fixed: map[string]string{"hidden_act": `"gelu_pytorch_tanh"`}, Absent: map[string]string{
			"latent_patch": "[1, 1, 1]", "in_channels": "7", "state_size": "8", "chunk_size": "32",
			"text_rows": "128", "video_scale": "[4, 16, 16]"}, Alias: map[string]string{"action_dim": "in_channels",
			"proprio_dim": "state_size", "action_horizon": "chunk_size", "action_video_freq_ratio": "video_every",
			"tokenizer_max_len": "text_rows", "num_inference_steps": "acting_steps"}, Omit: []string{"latent_patch"},
		Only: map[string]string{"n_obs_steps": "1", "prompt_template": fmt.Sprintf("%q", wamPrompt+"{task}"),
			"toggle_action_dimensions": "[]"}, Idle: slices.Concat(wamNested, []string{"context_len",
			"model_id", "tokenizer_model_id", "text_encoder_model_id", "base_model_id", "load_text_encoder",
			"mot_checkpoint_mixed_attn", "torch_dtype", "inference_seed", "rand_device", "text_cfg_scale",
			"negative_prompt", "tiled", "fp32_attention", "compile_action_infer", "use_gradient_checkpointing",
			"freeze_video_expert"}, stepless(lerobotIdle)), Prepare: wamSizesOf, Read: wamRest, Write: writeWAM}
}

// stepless are keys without that of a policy's steps when it acts.
func stepless(keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return key == "num_inference_steps"
	})
}

// wamMappings are the mappings of a file; what is none is wamRest's to refuse.
func wamMappings(raw map[string]json.RawMessage) map[string]map[string]json.RawMessage {
	out := map[string]map[string]json.RawMessage{}
	for _, key := range wamNested {
		var m map[string]json.RawMessage
		_ = json.Unmarshal(raw[key], &m) // wamRest says of what is no mapping
		out[key] = m
	}
	return out
}

// wamSizesOf makes keys of what lerobot's file has deeper, and of the size of all views side by side.
func wamSizesOf(raw hf.Raw) {
	deep := wamMappings(raw)
	take := func(sizes map[string][2]string, of func(key string) json.RawMessage) {
		for from, to := range sizes { // each by itself
			switch v := of(from); {
			case raw[to[0]] != nil:
			case v != nil:
				raw[to[0]] = v
			default:
				raw[to[0]] = json.RawMessage(to[1])
			}
		}
	}
	take(wamVideoSizes, func(key string) json.RawMessage { return deep["video_dit_config"][key] })
	take(wamActionSizes, func(key string) json.RawMessage { return deep["action_dit_config"][key] })
	take(wamScheduleSizes, func(key string) json.RawMessage {
		for _, in := range wamNested {
			if n := len(in); len(key) > n && key[:n] == in {
				return deep[in][key[n+1:]]
			}
		}
		return nil
	})
	if v := raw["sigma_shift"]; v != nil && string(v) != "null" {
		raw["acting_shift"] = v
	}
	delete(raw, "sigma_shift")
	frames, every, size := 33, 4, []int{224, 448}
	given := raw["num_video_frames"]
	if given == nil || json.Unmarshal(given, &frames) == nil {
		if e := raw["action_video_freq_ratio"]; e == nil {
			raw["action_video_freq_ratio"] = json.RawMessage("4")
		} else if json.Unmarshal(e, &every) != nil || every < 1 {
			return
		}
		if (frames-1)%every != 0 {
			return // wamRest refuses it
		}
		if raw["video_frames"] == nil {
			raw["video_frames"] = json.RawMessage(fmt.Sprint((frames-1)/every + 1))
		}
		delete(raw, "num_video_frames")
	}
	viewed(raw)
	if raw["image_size"] != nil && (json.Unmarshal(raw["image_size"], &size) != nil || len(size) != 2) {
		return
	}
	views := 1
	if raw["views"] == nil {
		raw["views"] = json.RawMessage("1")
	}
	if json.Unmarshal(raw["views"], &views) != nil || views < 1 || size[1]%views != 0 {
		return
	}
	delete(raw, "image_size")
	raw["view_height"] = json.RawMessage(fmt.Sprint(size[0]))
	raw["view_width"] = json.RawMessage(fmt.Sprint(size[1] / views))
}

// leftover refuses keys that what prepares a file could make nothing of.
func leftover(d *hf.Decoder, raw map[string]json.RawMessage, why map[string]string) {
	for _, key := range source.SortedKeys(why) {
		if v := raw[key]; v != nil {
			d.Fail(key, hf.Compact(v)+" "+why[key], "")
		}
	}
}

// wamRest holds what lies deeper to what is built.
func wamRest(d *hf.Decoder, raw map[string]json.RawMessage) {
	for i, m := range []mapping{wamVideoHolds, wamActionHolds, wamScheduleHolds, wamScheduleHolds, wamLossHolds} {
		m.hold(d, raw, wamNested[i])
	}
	leftover(d, raw, map[string]string{
		"num_video_frames": "is no number of frames of which every action_video_freq_ratio-th is seen",
		"image_size":       "is no height and width that views of one width fill"})
	deep := wamMappings(raw)
	if m := deep["video_dit_config"]; len(m) > 0 && m["video_attention_mask_mode"] == nil {
		d.Fail("video_dit_config.video_attention_mask_mode", "is not given, which is bidirectional to lerobot, and "+
			"first_frame_causal alone is built", "")
	}
	for _, key := range []string{"proprio_dim", "state_size"} {
		if v := raw[key]; v != nil && hf.Compact(v) == "null" {
			d.Fail(key, "null, and a model that is told no state is not built", "")
		}
	}
	for _, key := range wamNested {
		if raw[key] == nil {
			continue
		}
		if v := hf.Compact(raw[key]); v != "null" && deep[key] == nil {
			d.Fail(key, v+", want a mapping", "")
		}
	}
	if v := deep["video_dit_config"]["out_dim"]; v != nil && raw["video_channels"] != nil && !source.SameValue(hf.Compact(v),
		hf.Compact(raw["video_channels"])) {
		d.Fail("video_dit_config.out_dim", fmt.Sprintf("%s, and latents have %s channels", v,
			raw["video_channels"]), "")
	}
	for _, key := range source.SortedKeys(wamAlike) {
		to := wamAlike[key]
		have := raw[to]
		if to == "in_channels" && have == nil {
			have = raw["action_dim"]
		}
		if v := deep["action_dit_config"][key]; v != nil && have != nil && !source.SameValue(hf.Compact(v),
			hf.Compact(have)) {
			d.Fail("action_dit_config."+key, fmt.Sprintf("%s, and the stream of video has %s", v, have), "")
		}
	}
}

// writeWAM is the inverse of wamSizesOf. What files of lerobot's do not say are keys of this program's own,
// where they are not the usual ones.
func writeWAM(m hf.Values, out map[string]any) {
	deep := map[string]map[string]any{"video_dit_config": {}, "action_dit_config": {}, "video_scheduler": {
		"num_train_timesteps": 1000}, "action_scheduler": {"num_train_timesteps": 1000}, "loss": {}}
	for from, to := range wamVideoSizes {
		deep["video_dit_config"][from] = m[to[0]]
		delete(out, to[0])
	}
	for from, to := range wamActionSizes {
		deep["action_dit_config"][from] = m[to[0]]
		delete(out, to[0])
	}
	for key, to := range wamAlike {
		deep["action_dit_config"][key] = m[to]
	}
	video := deep["video_dit_config"]
	video["out_dim"], video["action_dim"] = m["video_channels"], m["in_channels"]
	for key, v := range map[string]any{"seperated_timestep": true, "action_conditioned": false,
		"video_attention_mask_mode": "first_frame_causal", "action_group_causal_mask_mode": "group_diagonal"} {
		video[key] = v
	}
	deep["video_scheduler"]["train_shift"] = m["video_shift"]
	deep["video_scheduler"]["infer_shift"] = m["acting_shift"]
	deep["action_scheduler"]["train_shift"] = m["action_shift"]
	deep["action_scheduler"]["infer_shift"] = m["acting_shift"]
	deep["loss"]["lambda_video"], deep["loss"]["lambda_action"] = m["video_loss"], m["action_loss"]
	for key, v := range deep {
		out[key] = v
	}
	out["type"], out["context_len"] = m.Text("model_type"), m["text_rows"]
	out["num_video_frames"] = (m.Int("video_frames")-1)*m.Int("video_every") + 1
	out["image_size"] = []int{m.Int("view_height"), m.Int("view_width") * m.Int("views")}
	for _, key := range []string{"_class_name", "_diffusers_version", "view_height", "view_width",
		"video_frames", "video_shift", "action_shift", "acting_shift", "video_loss", "action_loss"} {
		delete(out, key)
	}
	if fmt.Sprint(m["video_scale"]) == "[4 16 16]" {
		delete(out, "video_scale")
	}
}
