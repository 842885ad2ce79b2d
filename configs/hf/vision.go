package hf

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

// Composed says how the config.json of a family with a vision tower maps to Model.
type Composed struct {
	Class  string            // that transformers loads it with, "" for none
	Alias  string            // another model_type of the same family, as its own code has it
	Older  map[string]string // more spellings of keys of vision_config, which that code has
	Text   string            // family of the decoder; "" takes text_config's model_type
	Vision map[string]string // keys of vision_config by ours, where names differ
	Has    []string          // optional keys of ours that its models have beside those of the decoder's family
	// brings a file to the form of a vision_config and a text_config; may be nil
	Prepare func(raw Raw)
	Preset  map[string]string // ours that the family fixes, as JSON
	Absent  map[string]string // of text_config, where its class has other defaults than the decoder's own
	// mrope_section where text_config has none, as JSON; "" where positions are not turned by three axes
	Sections string
	Only     map[string]string // keys of vision_config that must have one value, as JSON

	// of families with several towers, by model_type of vision_config
	Kinds map[string]TowerKeys
	// tie_word_embeddings: transformers heeds that of the top level; with EitherTies true in text_config counts too,
	// and Tied, as JSON, is what holds where the top level does not say, "" for what text_config says
	EitherTies bool
	Tied       string
	Top        map[string]string // further keys of the top level, ours or "" for those that rest reads
	Rest       func(d *Decoder, raw, vision map[string]json.RawMessage)
	// Write enters what is not the same in all: keys of vision_config and text_config, and of the top
	// level; put enters one of ours into vision_config by the family's name of it.
	Write func(m Values, out map[string]any, put func(key string, value any))
}

// TowerKeys are what vision_config says of one of the towers that a family may have.
type TowerKeys struct {
	Preset map[string]string // ours, as JSON: the kind, and what transformers takes where a key is left out
	Vision map[string]string // further keys of vision_config by ours, "" for those that need no reading
	Only   map[string]string // further keys that must have one value, as JSON
}

// RegisterComposed enters a composed family.
func RegisterComposed(modelType string, c Composed) {
	if _, dup := ComposedFamilies[modelType]; dup {
		panic("hf: " + modelType + " registered twice")
	}
	ComposedFamilies[modelType] = c
}

// Tower is the model_type of vision_config that a family has for a kind of tower, "" for none.
func Tower(c Composed, kind string) string {
	for _, name := range source.SortedKeys(c.Kinds) {
		if c.Kinds[name].Preset["kind"] == strconv.Quote(kind) {
			return name
		}
	}
	return ""
}

// Has says whether models of a family have an optional key of ours; decoder is the family of their decoder.
func Has(modelType, decoder, key string) bool {
	return slices.Contains(Families()[decoder].Has, key) || slices.Contains(ComposedFamilies[modelType].Has, key)
}

// ComposedFamilies are the composed families by model_type.
var ComposedFamilies = map[string]Composed{}

// composedIdle are keys of vision_config and of the top level that say nothing about the arithmetic of training.
var composedIdle = source.Set("model_type", "initializer_range", "attention_dropout", "hidden_dropout_prob",
	"projection_dropout", "drop_path_rate", "vision_end_token_id", "vision_token_id",
	"image_seq_length", "dtype", "torch_dtype", "transformers_version", "architectures", "auto_map", "template", "force_image_size", "dynamic_image_size",
	"max_dynamic_patch", "min_dynamic_patch", "use_thumbnail", "pad2square", "use_backbone_lora",
	"use_llm_lora", "use_flash_attn", "dropout", "system_message", "_commit_hash", "num_channels", "return_dict",
	"chunk_size_feed_forward", "output_attentions", "output_hidden_states")

// composedOnly are keys of the top level that must have one value, as JSON: how InternVL joins patches, and of which
// layer.
var composedOnly = map[string]string{"ps_version": `"v2"`, "select_layer": "-1", "vision_feature_layer": "-1",
	"vision_feature_select_strategy": `"default"`}

// decodeComposed turns the config.json of a composed family into settings; the names of keys that are not
// known come back.
func decodeComposed(sink Sink, family string, c Composed, raw map[string]json.RawMessage,
	o source.Origin, at map[string]int) (unread []string) {
	if c.Prepare != nil {
		c.Prepare(raw)
	}
	sub := func(key string) map[string]json.RawMessage {
		var m map[string]json.RawMessage
		if raw[key] != nil && json.Unmarshal(raw[key], &m) != nil {
			o.Line = at[key]
			sink.Fail(o, key, "is not a JSON object", "")
		}
		return m
	}
	vision, text, inside := sub("vision_config"), sub("text_config"), "text_config."
	if vision == nil {
		sink.Fail(o, "vision_config", "is not given", "")
		return nil
	}
	if chat := sub("llm_config"); text == nil && chat != nil { // InternVL's own code
		text, inside = chat, "llm_config."
	}
	flat := text == nil // published files of Qwen2-VL and Qwen2.5-VL keep the decoder's keys at the top
	if flat {
		text = map[string]json.RawMessage{}
	}
	name := c.Text
	if name == "" {
		_ = json.Unmarshal(text["model_type"], &name) // another type leaves "", which no family has
	}
	f, ok := Families()[name]
	if !ok {
		sink.Fail(o, "text_config.model_type", fmt.Sprintf("%s is not a decoder that can be trained",
			source.Quoted(name)), nearest(sink, name, text))
		return nil
	}
	if c.Absent != nil {
		f.Absent = maps.Clone(f.Absent)
		maps.Copy(f.Absent, c.Absent)
	}
	d := &Decoder{Sink: sink, O: o, f: f, lines: at, inside: inside}
	d.constants(text)
	if raw["tie_word_embeddings"] == nil && c.Tied != "" && !d.own() {
		text["tie_word_embeddings"] = json.RawMessage(c.Tied)
	}
	unread = d.topKeys(c, raw, text, flat)
	delete(text, "model_type")
	delete(text, "architectures") // the decoder's by itself
	if f.Prepare != nil {
		f.Prepare(text)
	}
	c.turned(text)
	for _, key := range d.keys(text) {
		unread = append(unread, "text_config."+key)
	}
	d.noteLogits(text, c.Class)
	d.Set("model_type", `"`+family+`"`)
	d.Set("text_model_type", `"`+name+`"`)
	d.follow(text)
	if c.Rest != nil {
		c.Rest(d, raw, vision)
	}
	return append(unread, d.visionKeys(c, vision)...)
}

// turned adds the class's mrope_section to rotary settings that have none.
func (c Composed) turned(text Raw) {
	key, rope := "rope_parameters", map[string]json.RawMessage{}
	if given(text["rope_scaling"]) {
		key = "rope_scaling"
	}
	if c.Sections == "" || given(text[key]) && json.Unmarshal(text[key], &rope) != nil || rope["mrope_section"] != nil {
		return
	}
	rope["mrope_section"] = json.RawMessage(c.Sections)
	if b, err := json.Marshal(rope); err == nil { // it is, of what was decoded
		text[key] = b
	}
}

// own says whether the file is of a family's own code, whose decoder says alone whether embeddings are tied.
func (d *Decoder) own() bool { return d.inside == "llm_config." }

// topKeys enters the keys of the top level; where the file is flat, those that it does not know are the decoder's.
func (d *Decoder) topKeys(c Composed, raw, text map[string]json.RawMessage, flat bool) (unread []string) {
	top := map[string]string{"image_token_id": "vision.image_token_id", "video_token_id": "vision.video_token_id",
		"vision_start_token_id": "vision.vision_start_token_id", "projector_hidden_act": "vision.projector_hidden_act"}
	defer func() { d.at = 0 }()
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		value := Compact(raw[key])
		d.at = d.lines[key]
		ours, further := c.Top[key]
		switch {
		case further && ours != "":
			d.Set(ours, value)
		case further:
		case key == "text_config" || key == "llm_config" || key == "vision_config" || key == "model_type" ||
			composedIdle[key]:
		case composedOnly[key] != "":
			if !source.SameValue(composedOnly[key], value) {
				d.Fail(key, fmt.Sprintf("%s, only %s can be trained", value, composedOnly[key]), "")
			}
		case top[key] != "":
			d.Set(top[key], value)
		case key == "downsample_ratio":
			d.shuffle(raw)
		case key == "tie_word_embeddings" && text[key] != nil:
			if inner := string(text[key]); !d.own() && !(c.EitherTies && inner == "true") {
				text[key] = raw[key]
			}
		case flat || key == "tie_word_embeddings":
			text[key] = raw[key]
		default:
			unread = append(unread, key)
		}
	}
	return unread
}

// visionKeys enters vision_config.
func (d *Decoder) visionKeys(c Composed, vision map[string]json.RawMessage) (unread []string) {
	if !d.tower(c, vision) {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(c.Preset)) {
		d.Set("vision."+key, c.Preset[key])
	}
	kind := c.Kinds[towerOf(vision)]
	defer func() { d.at = 0 }()
	for _, key := range slices.Sorted(maps.Keys(vision)) {
		value := Compact(vision[key])
		d.at = d.lines["vision_config."+key]
		to, renamed := c.Vision[key]
		if own, ok := kind.Vision[key]; ok {
			to, renamed = own, true
		}
		if old := c.Older[key]; old != "" {
			to, renamed = old, true
		}
		if !renamed {
			to = key
		}
		switch only := cmp.Or(c.Only[key], kind.Only[key]); {
		case key == "norm_type":
			d.norm(vision)
		case key == "mlp_ratio":
			d.ratio(vision)
		case key == "rope_parameters":
			d.axial(value)
		case key == "image_size" || key == "patch_size":
			d.square("vision."+key, value)
		case only != "":
			if !source.SameValue(only, value) {
				d.Fail("vision_config."+key, fmt.Sprintf("%s, only %s can be trained", value, only), "")
			}
		case renamed && to == "" || value == "null":
		case d.Sink.Has(source.ModelKeys + ".vision." + to):
			d.Set("vision."+to, value)
		case composedIdle[key] && strings.Contains(key, "drop"):
			d.noDropout("vision_config."+key, value)
		case composedIdle[key]:
		default:
			unread = append(unread, "vision_config."+key)
		}
	}
	return unread
}

// tower enters what the model_type of vision_config says, of a family with several towers, and reports
// whether it may be trained.
func (d *Decoder) tower(c Composed, vision map[string]json.RawMessage) bool {
	tower := towerOf(vision)
	keys, known := c.Kinds[tower]
	if c.Kinds != nil && !known {
		d.Fail("vision_config.model_type", fmt.Sprintf("%s is not a tower that can be trained",
			source.Quoted(tower)), source.OneOf(source.SortedKeys(c.Kinds)))
		return false
	}
	for _, key := range source.SortedKeys(keys.Preset) {
		d.Set("vision."+key, keys.Preset[key])
	}
	return true
}

// towerOf is the model_type of vision_config.
func towerOf(vision map[string]json.RawMessage) (name string) {
	_ = json.Unmarshal(vision["model_type"], &name) // what is not a string is not a tower
	return name
}

// ratio is the width of Qwen2-VL's MLP: a multiple of the tower's.
func (d *Decoder) ratio(vision map[string]json.RawMessage) {
	type keys struct {
		Width int     `key:"embed_dim" min:"0"`
		Ratio float64 `key:"mlp_ratio" min:"0"`
	}
	if k, ok := Typed(d, vision, "vision_config", keys{}); ok && k.Width > 0 && k.Ratio > 0 {
		d.Set("vision.intermediate_size", fmt.Sprint(int(float64(k.Width)*k.Ratio)))
	}
}

// shuffle is the side of the squares of patches that become one feature: the share of a side that is left.
func (d *Decoder) shuffle(raw Raw) {
	type keys struct {
		Left *float64 `key:"downsample_ratio" min:"0" max:"1"`
	}
	k, ok := Typed(d, raw, "", keys{})
	switch {
	case !ok || k.Left == nil:
	case *k.Left == 0 || math.Abs(1 / *k.Left - math.Round(1 / *k.Left)) > 1e-6:
		d.Fail("downsample_ratio", fmt.Sprintf("%g, want 1 divided by a whole number", *k.Left), "try 0.5")
	default:
		d.Set("vision.merge", fmt.Sprint(int(math.Round(1 / *k.Left))))
	}
}

// norm is the kind of norms of InternVL's tower.
func (d *Decoder) norm(vision Raw) {
	type keys struct {
		Kind string `key:"norm_type" oneof:"layer_norm|rms_norm"`
	}
	if k, ok := Typed(d, vision, "vision_config", keys{Kind: "layer_norm"}); ok {
		d.Set("vision.rms_norm", fmt.Sprint(k.Kind == "rms_norm"))
	}
}

// axial holds the tower's rotary embedding to the one that is built.
func (d *Decoder) axial(value string) {
	var r struct {
		Theta float64 `json:"rope_theta"`
		Type  string  `json:"rope_type"`
	}
	if json.Unmarshal([]byte(value), &r) != nil || r.Theta != 10000 || r.Type != "axial" {
		d.Fail("vision_config.rope_parameters",
			value+`, only {"rope_theta":10000.0,"rope_type":"axial"} can be trained`, "")
	}
}

// square takes one side of a size that is a number or a pair of equal ones.
func (d *Decoder) square(key, value string) {
	var pair []int
	if json.Unmarshal([]byte(value), &pair) != nil {
		d.Set(key, value)
		return
	}
	if len(pair) != 2 || pair[0] != pair[1] {
		d.Fail(key, value+", want two equal sides", "")
		return
	}
	d.Set(key, fmt.Sprint(pair[0]))
}
