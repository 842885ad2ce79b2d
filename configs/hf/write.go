package hf

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Values is a model by our names of its keys below model.overrides, such as hidden_size and vision.depth;
// rope_scaling is the mapping of config.json or nil, and vision the tower by our keys.
type Values map[string]any

// Int is a whole number.
func (m Values) Int(key string) int { return m[key].(int) }

// Text is a word.
func (m Values) Text(key string) string { return m[key].(string) }

// Encode writes the model as the config.json of its family, for an export that has no source directory to
// copy it from. dtype is the weights' type by torch's name, such as bfloat16.
func Encode(m Values, dtype string) []byte {
	decoder := m.Text("model_type")
	if text := m.Text("text_model_type"); text != "" {
		decoder = text
	}
	f := Families()[decoder]
	if f.Diffusers {
		return f.diffusers(m)
	}
	out := map[string]any{"hidden_act": m["hidden_act"], "torch_dtype": dtype, "use_cache": true,
		"bos_token_id": nil, "eos_token_id": nil, "pad_token_id": nil}
	for _, key := range []string{"model_type", "architectures", "hidden_size", "num_hidden_layers", "num_attention_heads",
		"num_key_value_heads", "head_dim", "intermediate_size", "vocab_size", "max_position_embeddings", "rms_norm_eps",
		"rope_theta", "rope_scaling", "tie_word_embeddings", "attention_bias", "initializer_range"} {
		out[key] = m[key]
	}
	if classes, ok := m["architectures"].([]string); ok && len(classes) == 0 {
		delete(out, "architectures")
	}
	if bos := m.Int("bos_token_id"); bos >= 0 {
		out["bos_token_id"] = bos
	}
	if m.Int("max_position_embeddings") == 0 { // as in a file that says it is null
		out["max_position_embeddings"] = nil
	}
	if eos := m["eos_token_id"].([]int); len(eos) == 1 {
		out["eos_token_id"] = eos[0]
	} else if len(eos) > 1 {
		out["eos_token_id"] = eos
	}
	for _, key := range f.Has {
		switch v := reflect.ValueOf(m[key]); {
		case v.Kind() == reflect.Slice && v.Len() == 0:
		case v.CanInterface() && v.IsZero() && slices.Contains(f.Null, key):
			out[key] = nil
		case v.IsZero() && v.Kind() != reflect.Bool && f.Absent[key] == "": // not given: transformers' own default
		default:
			out[key] = m[key]
		}
	}
	for _, key := range f.Offered {
		out[key] = m[key]
	}
	if f.Doubled {
		out["intermediate_size"] = 2 * m.Int("intermediate_size")
	}
	for _, key := range f.Omit {
		delete(out, key)
	}
	was := maps.Clone(out)
	for from, to := range f.Alias { // two may be of one, which may be one of them
		if out[from] = was[to]; f.Alias[to] == "" {
			delete(out, to)
		}
	}
	for key, value := range f.Only {
		out[key] = json.RawMessage(value)
	}
	if f.Write != nil {
		f.Write(m, out)
	}
	if _, composed := ComposedFamilies[m.Text("model_type")]; composed {
		out = m.composed(out)
	}
	text, err := json.MarshalIndent(floats(out, f.Whole), "", "  ")
	if err != nil {
		panic(fmt.Sprintf("hf: a model cannot be JSON: %v", err))
	}
	return append(text, '\n')
}

// diffusers writes the model as diffusers' config.json: the family's keys by its own names.
func (f Family) diffusers(m Values) []byte {
	out := map[string]any{"_class_name": f.Class, "_diffusers_version": "0.42.1",
		"num_attention_heads": m["num_attention_heads"]}
	own := map[string]string{}
	for from, to := range f.Alias {
		out[from], own[to] = m[to], from
	}
	for _, key := range f.Has {
		if own[key] == "" {
			out[key] = m[key]
		}
	}
	for _, key := range f.Omit {
		delete(out, key)
	}
	for key, value := range f.Only {
		out[key] = json.RawMessage(value)
	}
	if f.Write != nil {
		f.Write(m, out)
	}
	text, err := json.MarshalIndent(floats(out, f.Whole), "", "  ")
	if err != nil {
		panic(fmt.Sprintf("hf: a model cannot be JSON: %v", err))
	}
	return append(text, '\n')
}

// number is a JSON number with a point: transformers refuses 30 where it wants a float.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	text := strconv.FormatFloat(float64(n), 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return []byte(text), nil
}

// floats makes numbers with a point of all floats but those of some keys.
func floats(m map[string]any, whole []string) map[string]any {
	out := make(map[string]any, len(m))
	for key, v := range m {
		switch x := v.(type) {
		case map[string]any:
			out[key] = floats(x, whole)
		case float64:
			if out[key] = number(x); slices.Contains(whole, key) {
				out[key] = int(x)
			}
		default:
			out[key] = v
		}
	}
	return out
}

// composed writes a composed model as config.json has it; text is the decoder's part.
func (m Values) composed(text map[string]any) map[string]any {
	c := ComposedFamilies[m.Text("model_type")]
	names := map[string]string{}
	for from, to := range c.Vision {
		if to != "" {
			names[to] = from
		}
	}
	vision := map[string]any{"initializer_range": m["initializer_range"]}
	put := func(key string, value any) {
		if n, ok := names[key]; ok {
			key = n
		}
		vision[key] = value
	}
	put("depth", m["vision.depth"])
	put("hidden_size", m["vision.hidden_size"])
	put("num_heads", m["vision.num_heads"])
	put("in_channels", m["vision.in_channels"])
	put("hidden_act", m["vision.hidden_act"])
	delete(text, "architectures") // the whole has one
	out := map[string]any{"model_type": m.Text("model_type"), "architectures": m["architectures"],
		"text_config": text, "vision_config": vision, "image_token_id": m["vision.image_token_id"],
		"tie_word_embeddings": m["tie_word_embeddings"], "torch_dtype": text["torch_dtype"]}
	text["model_type"] = m["text_model_type"]
	for key, token := range map[string]int{"video_token_id": m.Int("vision.video_token_id"),
		"vision_start_token_id": m.Int("vision.vision_start_token_id")} {
		if token >= 0 {
			out[key] = token
		}
	}
	if c.Write != nil {
		c.Write(m, out, put)
	}
	if len(m["architectures"].([]string)) == 0 {
		delete(out, "architectures")
	}
	return out
}
