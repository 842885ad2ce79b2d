package configs

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// hfComposed says how the config.json of a family with a vision tower maps to Model.
type hfComposed struct {
	class  string            // that transformers loads it with, "" for none
	alias  string            // another model_type of the same family, as its own code has it
	older  map[string]string // more spellings of keys of vision_config, which that code has
	text   string            // family of the decoder; "" takes text_config's model_type
	vision map[string]string // keys of vision_config by ours, where names differ
	preset map[string]string // ours that the family fixes, as JSON
	only   map[string]string // keys of vision_config that must have one value, as JSON

	kinds map[string]map[string]string // of families with several towers: ours by model_type of vision_config, as JSON
	texts map[string]map[string]string // keys of text_config that it may lack, by its model_type, as JSON
	top   map[string]string            // further keys of the top level, ours or "" for those that rest reads
	rest  func(d *hfDecoder, raw, vision map[string]json.RawMessage)
	write func(m Model, out map[string]any) // in place of what composedConfig writes of the tower
}

// registerComposed enters a composed family.
func registerComposed(family string, c hfComposed) struct{} {
	if _, dup := hfComposedFamilies[family]; dup {
		panic("configs: " + family + " registered twice")
	}
	hfComposedFamilies[family] = c
	return struct{}{}
}

// hfTower is the model_type of vision_config that a family has for a kind of tower, "" for none.
func hfTower(c hfComposed, kind string) string {
	for _, name := range sortedKeys(c.kinds) {
		if c.kinds[name]["kind"] == strconv.Quote(kind) {
			return name
		}
	}
	return ""
}

// hfComposedFamilies are the composed families by model_type.
var hfComposedFamilies = map[string]hfComposed{
	"qwen2_vl": {class: "Qwen2VLForConditionalGeneration", text: "qwen2",
		vision: map[string]string{"embed_dim": "hidden_size", "spatial_merge_size": "merge", "in_chans": "in_channels", "spatial_patch_size": "patch_size", "hidden_size": "", "mlp_ratio": ""},
		preset: map[string]string{"kind": `"qwen2_vl"`, "hidden_act": `"quick_gelu"`, "temporal_patch_size": "2"}},
	"qwen2_5_vl": {class: "Qwen2_5_VLForConditionalGeneration", text: "qwen2",
		vision: map[string]string{"spatial_merge_size": "merge", "in_chans": "in_channels", "spatial_patch_size": "patch_size", "out_hidden_size": ""},
		preset: map[string]string{"kind": `"qwen2_5_vl"`, "rms_norm": "true", "hidden_act": `"silu"`, "temporal_patch_size": "2"}},
	"qwen3_vl": {class: "Qwen3VLForConditionalGeneration", text: "qwen3",
		vision: map[string]string{"spatial_merge_size": "merge", "out_hidden_size": ""},
		preset: map[string]string{"kind": `"qwen3_vl"`, "hidden_act": `"gelu_pytorch_tanh"`, "temporal_patch_size": "2", "patch_size": "16"}},
	"internvl": {class: "InternVLForConditionalGeneration", alias: "internvl_chat",
		older:  map[string]string{"qkv_bias": "attention_bias", "qk_normalization": "use_qk_norm", "initializer_factor": "layer_scale_init_value"},
		vision: map[string]string{"num_hidden_layers": "depth", "num_attention_heads": "num_heads", "num_channels": "in_channels", "norm_type": ""},
		preset: map[string]string{"kind": `"internvl"`, "attention_bias": "false", "projector": `"internvl"`},
		only:   map[string]string{"use_mask_token": "false", "use_absolute_position_embeddings": "true"}},
	"llava_onevision1_5": {class: "LlavaOnevision1_5ForConditionalGeneration", text: "qwen3", alias: "llavaonevision1_5",
		vision: map[string]string{"spatial_merge_size": "merge", "out_hidden_size": "", "text_hidden_size": "", "embed_dim": ""},
		preset: map[string]string{"kind": `"rice"`, "hidden_act": `"gelu"`, "layer_norm_eps": "1e-5", "temporal_patch_size": "1"}},
	"vlm": {}, // a pair of one's own: vision_config has our keys
}

// composedIdle are keys of vision_config and of the top level that say nothing about the arithmetic of training.
var composedIdle = set("model_type", "initializer_range", "attention_dropout", "hidden_dropout_prob", "projection_dropout", "use_mean_pooling", "drop_path_rate",
	"vision_end_token_id", "vision_token_id", "image_seq_length", "dtype", "torch_dtype", "transformers_version", "architectures", "vision_feature_layer", "vision_feature_select_strategy",
	"auto_map", "template", "force_image_size", "dynamic_image_size", "max_dynamic_patch", "min_dynamic_patch", "use_thumbnail", "pad2square", "use_backbone_lora", "use_llm_lora",
	"use_flash_attn", "dropout", "system_message", "_commit_hash",
	"tokens_per_second", "num_channels", "return_dict", "chunk_size_feed_forward", "output_attentions", "output_hidden_states")

// composedOnly are keys of the top level that must have one value, as JSON: how InternVL's own code joins patches, and of which layer.
var composedOnly = map[string]string{"ps_version": `"v2"`, "select_layer": "-1"}

// decodeComposed turns the config.json of a composed family into settings; the names of keys that are not known come back.
func (l *loader) decodeComposed(family string, c hfComposed, raw map[string]json.RawMessage, o Origin) (unread []string) {
	sub := func(key string) map[string]json.RawMessage {
		var m map[string]json.RawMessage
		if raw[key] != nil && json.Unmarshal(raw[key], &m) != nil {
			l.fail(o, key, "is no JSON object", "")
		}
		return m
	}
	vision, text := sub("vision_config"), sub("text_config")
	if vision == nil {
		l.fail(o, "vision_config", "is not given", "")
		return nil
	}
	if chat := sub("llm_config"); text == nil && chat != nil { // InternVL's own code
		text = chat
	}
	flat := text == nil // published files of Qwen2-VL and Qwen2.5-VL keep the decoder's keys at the top
	if flat {
		text = map[string]json.RawMessage{}
	}
	name := c.text
	if name == "" {
		_ = json.Unmarshal(text["model_type"], &name)
	}
	f, ok := hfFamilies[name]
	if !ok {
		l.fail(o, "text_config.model_type", fmt.Sprintf("%s is no decoder that can be trained", quoted(name)), oneOf(familyNames()))
		return nil
	}
	d := &hfDecoder{l: l, f: f, o: o}
	for _, key := range sortedKeys(c.texts[name]) {
		d.set(key, c.texts[name][key])
	}
	unread = d.topKeys(c, raw, text, flat)
	delete(text, "model_type")
	delete(text, "architectures") // the decoder's by itself
	for _, key := range slices.Sorted(maps.Keys(text)) {
		if !d.key(key, compact(text[key])) {
			unread = append(unread, "text_config."+key)
		}
	}
	d.set("model_type", `"`+family+`"`)
	d.set("text_model_type", `"`+name+`"`)
	if f.qkNorm {
		d.set("qk_norm", "true")
	}
	if f.bias != nil && *f.bias {
		d.set("attention_bias", "true")
	}
	if c.rest != nil {
		c.rest(d, raw, vision)
	}
	return append(unread, d.visionKeys(c, vision)...)
}

// topKeys enters the keys of the top level; where the file is flat, those that it does not know are the decoder's.
func (d *hfDecoder) topKeys(c hfComposed, raw, text map[string]json.RawMessage, flat bool) (unread []string) {
	top := map[string]string{"image_token_id": "vision.image_token_id", "video_token_id": "vision.video_token_id", "vision_start_token_id": "vision.vision_start_token_id",
		"projector_hidden_act": "vision.projector_hidden_act"}
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		value := compact(raw[key])
		ours, further := c.top[key]
		switch {
		case further && ours != "":
			d.set(ours, value)
		case further:
		case key == "text_config" || key == "llm_config" || key == "vision_config" || key == "model_type" || composedIdle[key]:
		case composedOnly[key] != "":
			if !sameValue(composedOnly[key], value) {
				d.l.fail(d.o, key, fmt.Sprintf("%s, only %s can be trained", value, composedOnly[key]), "")
			}
		case top[key] != "":
			d.set(top[key], value)
		case key == "downsample_ratio":
			var r float64
			if json.Unmarshal(raw[key], &r) == nil && r > 0 {
				d.set("vision.merge", fmt.Sprint(int(1/r)))
			}
		case key == "tie_word_embeddings" && text[key] != nil: // the decoder's own says which
		case flat || key == "tie_word_embeddings":
			text[key] = raw[key]
		default:
			unread = append(unread, key)
		}
	}
	return unread
}

// visionKeys enters vision_config.
func (d *hfDecoder) visionKeys(c hfComposed, vision map[string]json.RawMessage) (unread []string) {
	if !d.tower(c, vision) {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(c.preset)) {
		d.set("vision."+key, c.preset[key])
	}
	for _, key := range slices.Sorted(maps.Keys(vision)) {
		value := compact(vision[key])
		to, renamed := c.vision[key]
		if old := c.older[key]; old != "" {
			to, renamed = old, true
		}
		if !renamed {
			to = key
		}
		switch only := c.only[key]; {
		case key == "tokens_per_second":
			d.set("vision."+key, value)
		case key == "norm_type":
			d.set("vision.rms_norm", fmt.Sprint(value == `"rms_norm"`))
		case key == "mlp_ratio":
			d.ratio(vision)
		case key == "rope_parameters":
			d.axial(value)
		case key == "image_size" || key == "patch_size":
			d.square("vision."+key, value)
		case only != "":
			if !sameValue(only, value) {
				d.l.fail(d.o, "vision_config."+key, fmt.Sprintf("%s, only %s can be trained", value, only), "")
			}
		case renamed && to == "" || value == "null":
		case table().byName[overrides+".vision."+to] != nil:
			d.set("vision."+to, value)
		case composedIdle[key]:
		default:
			unread = append(unread, "vision_config."+key)
		}
	}
	return unread
}

// tower enters what the model_type of vision_config says, of a family with several towers, and reports whether it may be trained.
func (d *hfDecoder) tower(c hfComposed, vision map[string]json.RawMessage) bool {
	var tower string
	_ = json.Unmarshal(vision["model_type"], &tower) // what is no string is no tower
	if c.kinds != nil && c.kinds[tower] == nil {
		d.l.fail(d.o, "vision_config.model_type", fmt.Sprintf("%s is no tower that can be trained", quoted(tower)), oneOf(sortedKeys(c.kinds)))
		return false
	}
	for _, key := range sortedKeys(c.kinds[tower]) {
		d.set("vision."+key, c.kinds[tower][key])
	}
	return true
}

// ratio is the width of Qwen2-VL's MLP: a multiple of the tower's.
func (d *hfDecoder) ratio(vision map[string]json.RawMessage) {
	var width, ratio float64
	if json.Unmarshal(vision["embed_dim"], &width) == nil && json.Unmarshal(vision["mlp_ratio"], &ratio) == nil {
		d.set("vision.intermediate_size", fmt.Sprint(int(width*ratio)))
	}
}

// axial holds the tower's rotary embedding to the one that is built.
func (d *hfDecoder) axial(value string) {
	var r struct {
		Theta float64 `json:"rope_theta"`
		Type  string  `json:"rope_type"`
	}
	if json.Unmarshal([]byte(value), &r) != nil || r.Theta != 10000 || r.Type != "axial" {
		d.l.fail(d.o, "vision_config.rope_parameters", value+`, only {"rope_theta":10000.0,"rope_type":"axial"} can be trained`, "")
	}
}

// square takes one side of a size that is a number or a pair of equal ones.
func (d *hfDecoder) square(key, value string) {
	var pair []int
	if json.Unmarshal([]byte(value), &pair) != nil {
		d.set(key, value)
		return
	}
	if len(pair) != 2 || pair[0] != pair[1] {
		d.l.fail(d.o, key, value+", want two equal sides", "")
		return
	}
	d.set(key, fmt.Sprint(pair[0]))
}

// composedConfig writes a composed model as config.json has it; text is the decoder's part.
func (m Model) composedConfig(text map[string]any) map[string]any {
	c, v := hfComposedFamilies[m.ModelType], m.Vision
	names := map[string]string{}
	for from, to := range c.vision {
		if to != "" {
			names[to] = from
		}
	}
	vision := map[string]any{"initializer_range": m.InitRange}
	put := func(key string, value any) {
		if n, ok := names[key]; ok {
			key = n
		}
		vision[key] = value
	}
	put("depth", v.Depth)
	put("hidden_size", v.Hidden)
	put("num_heads", v.Heads)
	put("in_channels", v.Channels)
	put("hidden_act", v.Act)
	delete(text, "architectures") // the whole has one
	out := map[string]any{"model_type": m.ModelType, "architectures": m.Architectures, "text_config": text, "vision_config": vision, "image_token_id": v.ImageToken,
		"tie_word_embeddings": m.TieEmbeddings, "torch_dtype": text["torch_dtype"]}
	text["model_type"] = m.Text
	switch m.ModelType {
	case "internvl":
		out["downsample_ratio"], out["projector_hidden_act"] = 1/float64(v.Merge), v.ProjAct
		put("intermediate_size", v.Inter)
		maps.Copy(vision, map[string]any{"image_size": []int{v.ImageSize, v.ImageSize}, "patch_size": []int{v.Patch, v.Patch}, "layer_norm_eps": v.Eps,
			"norm_type": map[bool]string{true: "rms_norm", false: "layer_norm"}[v.RMS], "attention_bias": v.QKVBias, "use_qk_norm": v.QKNorm,
			"layer_scale_init_value": v.Scale, "model_type": "internvl_vision"})
	case "llava_onevision1_5":
		put("merge", v.Merge)
		maps.Copy(vision, map[string]any{"intermediate_size": v.Inter, "out_hidden_size": m.Hidden, "patch_size": v.Patch, "temporal_patch_size": v.Temporal,
			"layer_norm_eps": v.Eps, "model_type": "llava_onevision1_5_vision"})
		text["model_type"] = m.ModelType + "_text"
	case "vlm":
		out["vision_config"] = v.keys()
	default:
		put("merge", v.Merge)
		put("patch_size", v.Patch)
		put("temporal_patch_size", v.Temporal)
		vision["model_type"] = map[string]string{"qwen2_vl": "qwen2_vl_vision", "qwen2_5_vl": "qwen2_5_vl_vision", "qwen3_vl": "qwen3_vl_vision"}[m.ModelType]
		text["model_type"] = m.ModelType + "_text"
		if m.ModelType == "qwen2_vl" {
			vision["hidden_size"], vision["mlp_ratio"] = m.Hidden, float64(v.Inter)/float64(v.Hidden)
		} else {
			vision["intermediate_size"], vision["out_hidden_size"] = v.Inter, m.Hidden
		}
	}
	switch m.ModelType {
	case "qwen2_5_vl":
		maps.Copy(vision, map[string]any{"window_size": v.Window, "fullatt_block_indexes": v.FullLayers, "tokens_per_second": v.PerSecond})
	case "qwen3_vl":
		maps.Copy(vision, map[string]any{"deepstack_visual_indexes": v.Deepstack, "num_position_embeddings": v.Positions})
	}
	for key, token := range map[string]int{"video_token_id": v.VideoToken, "vision_start_token_id": v.StartToken} {
		if token >= 0 {
			out[key] = token
		}
	}
	if c.write != nil {
		c.write(m, out)
	}
	if len(m.Architectures) == 0 {
		delete(out, "architectures")
	}
	return out
}
