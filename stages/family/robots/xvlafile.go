package robots

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/lfactor/lfactor/configs/hf"
)

// florenceFile is florence_config of lerobot's files of X-VLA. What it has beside says nothing about the arithmetic of
// Florence-2's encoder, or is of its decoder, which X-VLA has not.
type florenceFile struct {
	Projection int `json:"projection_dim"`
	Vocab      int `json:"vocab_size"`
	Vision     struct {
		Type       string   `json:"model_type"`
		Kernels    []int    `json:"patch_size"`
		Strides    []int    `json:"patch_stride"`
		Paddings   []int    `json:"patch_padding"`
		Prenorm    []bool   `json:"patch_prenorm"`
		Widths     []int    `json:"dim_embed"`
		Heads      []int    `json:"num_heads"`
		Groups     []int    `json:"num_groups"`
		Depths     []int    `json:"depths"`
		Window     int      `json:"window_size"`
		Projection int      `json:"projection_dim"`
		Source     []string `json:"image_feature_source"`
		Drop       float64  `json:"drop_path_rate"`
		Times      struct {
			Type string `json:"type"`
			Most int    `json:"max_temporal_embeddings"`
		} `json:"visual_temporal_embedding"`
		Places struct {
			Type string `json:"type"`
			Most int    `json:"max_pos_embeddings"`
		} `json:"image_pos_embed"`
	} `json:"vision_config"`
	Text struct {
		Vocab     int    `json:"vocab_size"`
		Hidden    int    `json:"d_model"`
		Layers    int    `json:"encoder_layers"`
		Heads     int    `json:"encoder_attention_heads"`
		Inter     int    `json:"encoder_ffn_dim"`
		Positions int    `json:"max_position_embeddings"`
		Act       string `json:"activation_function"`
		Scaled    bool   `json:"scale_embedding"`
		Pad       int    `json:"pad_token_id"`
		Begin     int    `json:"bos_token_id"`
		End       int    `json:"eos_token_id"`
		// of the decoder, which lerobot's class makes and throws away
		DecoderHeads  int `json:"decoder_attention_heads"`
		DecoderInter  int `json:"decoder_ffn_dim"`
		DecoderLayers int `json:"decoder_layers"`
	} `json:"text_config"`
}

// featureSources are what Florence-2's features of a view are made of, in this order.
var featureSources = []string{"spatial_avg_pool", "temporal_avg_pool"}

// usual is a file that says nothing: Florence-2's defaults.
func (florenceFile) usual() (f florenceFile) {
	f.Projection, f.Vocab = 1024, 51289
	v, t := &f.Vision, &f.Text
	v.Type, v.Kernels, v.Strides, v.Paddings = "davit", []int{7, 3, 3, 3}, []int{4, 2, 2, 2}, []int{3, 1, 1, 1}
	v.Widths, v.Heads, v.Groups = []int{256, 512, 1024, 2048}, []int{8, 16, 32, 64}, []int{8, 16, 32, 64}
	v.Depths, v.Window, v.Projection, v.Source = []int{1, 1, 9, 1}, 12, 1024, featureSources
	v.Times.Type, v.Times.Most, v.Places.Type, v.Places.Most = "COSINE", 100, "learned_abs_2d", 50
	t.Vocab, t.Hidden, t.Layers, t.Heads, t.Inter = 51289, 1024, 12, 16, 4096
	t.Positions, t.Act, t.Pad, t.End = 1024, "gelu", bartPad, 2
	return f
}

// fits reports whether the file is one that can be read here.
func (f florenceFile) fits() bool {
	v, t := f.Vision, f.Text
	first := len(v.Prenorm) == len(v.Widths) && !slices.Contains(v.Prenorm[min(1, len(v.Prenorm)):], false)
	return first && len(v.Prenorm) > 0 && !v.Prenorm[0] && v.Type == "davit" && slices.Equal(v.Source,
		featureSources) && v.Times.Type == "COSINE" && v.Places.Type == "learned_abs_2d" && t.Act == "gelu" &&
		!t.Scaled && t.Pad == bartPad && f.Projection == t.Hidden && v.Projection == t.Hidden
}

// keys are ours of the file's.
func (f florenceFile) keys() map[string]any {
	v, t := f.Vision, f.Text
	return map[string]any{"tower_widths": v.Widths, "tower_depths": v.Depths, "tower_heads": v.Heads,
		"tower_groups": v.Groups, "tower_kernels": v.Kernels, "tower_strides": v.Strides,
		"tower_paddings": v.Paddings, "tower_window": v.Window, "tower_places": v.Places.Most,
		"tower_times": v.Times.Most, "text_hidden_size": t.Hidden, "text_layers": t.Layers,
		"text_heads": t.Heads, "text_intermediate_size": t.Inter, "text_positions": t.Positions,
		"vocab_size": t.Vocab}
}

// xvlaFile is how lerobot's files of X-VLA are read and written.
func xvlaFile() hf.Family {
	return hf.Family{Class: "xvla", Diffusers: true, Has: []string{"latent_patch", "in_channels", "state_size",
		"chunk_size", "views", "tower_widths", "tower_depths", "tower_heads", "tower_groups", "tower_kernels",
		"tower_strides", "tower_paddings", "tower_window", "tower_view", "tower_places", "tower_times",
		"text_hidden_size", "text_layers", "text_heads", "text_intermediate_size", "text_positions",
		"embodiments", "soft_prompts", "time_width", "policy_positions", "prompt_size", "action_form"},
		Absent: map[string]string{"latent_patch": "[1, 1, 1]", "hidden_size": "1024", "num_hidden_layers": "24",
			"num_attention_heads": "16", "chunk_size": "32", "state_size": "32", "embodiments": "30",
			"soft_prompts": "32", "time_width": "32", "policy_positions": "512", "prompt_size": "64"},
		Alias: map[string]string{"depth": "num_hidden_layers", "num_heads": "num_attention_heads",
			"num_domains": "embodiments", "len_soft_prompts": "soft_prompts", "dim_time": "time_width",
			"max_len_seq": "policy_positions", "tokenizer_max_length": "prompt_size",
			"max_state_dim": "state_size", "max_action_dim": "in_channels", "action_mode": "action_form"},
		Omit: []string{"latent_patch"}, Only: map[string]string{"n_obs_steps": "1", "use_hetero_proj": "false",
			"use_proprio": "true", "tokenizer_padding_side": `"right"`, "pad_language_to": `"max_length"`},
		Idle: append([]string{"tokenizer_name", "num_denoising_steps", "domain_feature_key",
			"freeze_language_encoder", "train_policy_transformer", "train_soft_prompts",
			"optimizer_soft_prompt_lr_scale", "optimizer_soft_prompt_warmup_lr_scale"},
			slices.DeleteFunc(slices.Clone(lerobotIdle), func(s string) bool {
				return s == "max_state_dim"
			})...), Prepare: xvlaSizes, Write: writeXVLA}
}

// xvlaSizes makes keys of what lerobot's file has. A Florence-2 that is none of those that are read here stays, and is
// refused as a key that nobody knows.
func xvlaSizes(raw hf.Raw) {
	extra := 0
	_ = json.Unmarshal(raw["empty_cameras"], &extra) // what is no number adds none
	named := raw["num_image_views"] != nil && string(raw["num_image_views"]) != "null"
	state, room := raw["max_state_dim"], raw["max_action_dim"]
	views := raw["num_image_views"]
	delete(raw, "num_image_views")
	viewed(raw)
	set := func(key string, v any) {
		if b, err := json.Marshal(v); err == nil && raw[key] == nil {
			raw[key] = b
		}
	}
	if named {
		raw["views"] = views
	} else if n := 0; json.Unmarshal(raw["views"], &n) == nil && n > 0 {
		raw["views"] = json.RawMessage(fmt.Sprint(n + extra))
	}
	var size []int
	if json.Unmarshal(raw["resize_imgs_with_padding"], &size) == nil && len(size) == 2 && size[0] == size[1] {
		set("tower_view", size[0])
	} else if string(raw["view_height"]) == string(raw["view_width"]) && raw["view_height"] != nil {
		raw["tower_view"] = raw["view_height"]
	}
	for _, key := range []string{"view_height", "view_width", "resize_imgs_with_padding", "in_channels",
		"state_size"} {
		delete(raw, key) // there is room for more numbers than a robot has
	}
	if raw["action_mode"] == nil {
		raw["action_mode"] = json.RawMessage(`"ee6d"`)
	}
	var mode string
	if json.Unmarshal(raw["action_mode"], &mode) == nil && actionForms[mode].width > 0 {
		delete(raw, "max_action_dim")
		set("in_channels", actionForms[mode].width)
	} else if room == nil {
		set("in_channels", 20)
	}
	if state == nil {
		set("state_size", 32)
	}
	ratio, width := 4.0, 1024
	if raw["mlp_ratio"] != nil && json.Unmarshal(raw["mlp_ratio"], &ratio) != nil {
		return
	}
	if raw["hidden_size"] != nil && json.Unmarshal(raw["hidden_size"], &width) != nil {
		return
	}
	delete(raw, "mlp_ratio")
	set("intermediate_size", int(float64(width)*ratio))
	f := florenceFile{}.usual()
	if json.Unmarshal(raw["florence_config"], &f) != nil || !f.fits() {
		return
	}
	delete(raw, "florence_config")
	for key, v := range f.keys() {
		set(key, v)
	}
}

// writeXVLA is the inverse of xvlaSizes.
func writeXVLA(m hf.Values, out map[string]any) {
	for _, key := range []string{"_class_name", "_diffusers_version", "views", "tower_view", "in_channels",
		"state_size"} {
		delete(out, key)
	}
	f := florenceFile{}.usual()
	list := func(key string) (v []int) {
		from := reflect.ValueOf(m[key])
		for i := range from.Len() {
			v = append(v, int(from.Index(i).Int()))
		}
		return v
	}
	v, t := &f.Vision, &f.Text
	v.Widths, v.Depths, v.Heads, v.Groups = list("tower_widths"), list("tower_depths"), list("tower_heads"),
		list("tower_groups")
	v.Kernels, v.Strides, v.Paddings = list("tower_kernels"), list("tower_strides"), list("tower_paddings")
	v.Window, v.Places.Most, v.Times.Most = m.Int("tower_window"), m.Int("tower_places"), m.Int("tower_times")
	v.Prenorm = make([]bool, len(v.Widths))
	for i := range v.Prenorm {
		v.Prenorm[i] = i > 0
	}
	t.Hidden, t.Layers, t.Heads = m.Int("text_hidden_size"), m.Int("text_layers"), m.Int("text_heads")
	t.Inter, t.Positions = m.Int("text_intermediate_size"), m.Int("text_positions")
	t.DecoderHeads, t.DecoderInter, t.DecoderLayers = t.Heads, t.Inter, 1
	t.Vocab, f.Vocab = m.Int("vocab_size"), m.Int("vocab_size")
	f.Projection, v.Projection = t.Hidden, t.Hidden
	for key := range f.keys() {
		delete(out, key)
	}
	for _, key := range []string{"num_hidden_layers", "num_attention_heads", "intermediate_size"} {
		delete(out, key)
	}
	file := xvlaFile()
	for from, to := range file.Alias {
		out[from] = m[to]
	}
	out["type"], out["florence_config"], out["num_image_views"] = "xvla", f, m.Int("views")
	out["hidden_size"], out["n_action_steps"] = m["hidden_size"], m["chunk_size"]
	out["mlp_ratio"] = float64(m.Int("intermediate_size")) / float64(m.Int("hidden_size"))
	side := m.Int("tower_view")
	out["resize_imgs_with_padding"] = []int{side, side}
}
