// Package hf reads and writes Hugging Face's config.json: how each family's keys map to ours.
package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

// Family says how a family's config.json maps to Model.
type Family struct {
	Class      string            // that transformers loads it with
	QKNorm     bool              // queries and keys are normed
	Bias       *bool             // whether query, key and value have biases; nil if the file says so
	MTP        bool              // may have multi-token-prediction layers
	PlainHeads bool              // as many key as query heads
	Alias      map[string]string // the family's own names of our keys
	Only       map[string]string // keys that must have one value, as JSON
	Doubled    bool              // intermediate_size counts gate and up together
	Omit       []string          // our keys that its file does not have
}

var yes, no = true, false

// Families are the families by model_type.
var Families = map[string]Family{
	"llama":     {Class: "LlamaForCausalLM", Bias: &no, Only: map[string]string{"mlp_bias": "false"}},
	"qwen2":     {Class: "Qwen2ForCausalLM", Bias: &yes, Omit: []string{"attention_bias"}},
	"qwen3":     {Class: "Qwen3ForCausalLM", Bias: &no, QKNorm: true},
	"internlm2": {Class: "InternLM2ForCausalLM", Bias: &no, Alias: map[string]string{"bias": "attention_bias"}},
	"mimo":      {Class: "MiMoForCausalLM", Bias: &yes, MTP: true},
	"qwen": {Class: "QWenLMHeadModel", Bias: &yes, PlainHeads: true, Doubled: true,
		Alias: map[string]string{"layer_norm_epsilon": "rms_norm_eps", "rotary_emb_base": "rope_theta", "kv_channels": "head_dim"},
		Only:  map[string]string{"rotary_pct": "1.0", "no_bias": "true", "scale_attn_weights": "true", "emb_dropout_prob": "0.0", "attn_dropout_prob": "0.0"},
		Omit:  []string{"attention_bias", "num_key_value_heads", "rope_scaling", "eos_token_id"}},
}

func familyNames() []string { return source.SortedKeys(Families) }

// everywhere are keys that must have one value in every family: others would compute something else.
var everywhere = map[string]string{
	"hidden_act": `"silu"`, "use_sliding_window": "false", "attention_dropout": "0.0", "partial_rotary_factor": "1.0",
}

// refused are keys that must not be there at all, or be null.
var refused = map[string]string{
	"quantization_config": "the weights are quantized: take the repository of the original ones",
	"num_experts":         "mixture-of-experts models are no dense family",
	"num_local_experts":   "mixture-of-experts models are no dense family",
	"kv_lora_rank":        "models with latent attention are no dense family",
}

// idle are keys that say nothing about the arithmetic of training.
var idle = source.Set("_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache", "pad_token_id", "auto_map", "pretraining_tp",
	"sliding_window", "max_window_layers", "tokenizer_class", "attn_implementation", "chunk_size_feed_forward", "output_attentions",
	"output_hidden_states", "return_dict", "is_encoder_decoder", "id2label", "label2id", "problem_type", "unk_token_id",
	// Qwen 1: used when generating beyond seq_length, or to choose kernels
	"seq_length", "use_dynamic_ntk", "use_logn_attn", "use_flash_attn", "bf16", "fp16", "fp32", "onnx_safe", "softmax_in_fp32",
	"use_cache_quantization", "use_cache_kernel", "params_dtype", "attn_implementation_internal")

// Decode turns a config.json into settings. Keys that would change the arithmetic and that Model does not have are
// faults; the names of others that are not known come back for a notice.
func Decode(sink source.Sink, path string, text []byte) (unread []string) {
	o := source.Origin{Layer: source.LayerModel, File: path}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		sink.Fail(o, "", "is no JSON object: "+err.Error(), "")
		return nil
	}
	var family string
	_ = json.Unmarshal(raw["model_type"], &family) // what is no string is no family
	for name, c := range ComposedFamilies {
		if c.Alias != "" && c.Alias == family {
			family = name
		}
	}
	if c, ok := ComposedFamilies[family]; ok {
		return decodeComposed(sink, family, c, raw, o)
	}
	f, ok := Families[family]
	if !ok {
		sink.Fail(o, "model_type", fmt.Sprintf("%s is no family that can be trained", source.Quoted(family)), source.OneOf(append(familyNames(), source.SortedKeys(ComposedFamilies)...)))
		return nil
	}
	d := &Decoder{Sink: sink, O: o, f: f}
	for _, key := range source.SortedKeys(raw) {
		if !d.key(key, compact(raw[key])) {
			unread = append(unread, key)
		}
	}
	if f.QKNorm {
		d.Set("qk_norm", "true")
	}
	if f.Bias != nil && *f.Bias {
		d.Set("attention_bias", "true")
	}
	return unread
}

// Decoder enters the keys of one config.json.
type Decoder struct {
	Sink source.Sink
	O    source.Origin
	f    Family
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		panic(fmt.Sprintf("hf: JSON that was decoded is none: %v", err))
	}
	return b.String()
}

// key enters one key of the file and says whether it was known.
func (d *Decoder) key(key, value string) bool {
	if to, ok := d.f.Alias[key]; ok {
		d.Set(to, value)
		return true
	}
	only, ok := d.f.Only[key]
	if !ok {
		only, ok = everywhere[key]
	}
	switch {
	case value == "null" || idle[key]:
	case ok:
		if !source.SameValue(only, value) {
			d.Sink.Fail(d.O, key, fmt.Sprintf("%s, only %s can be trained", value, only), "")
		}
	case refused[key] != "":
		d.Sink.Fail(d.O, key, refused[key], "")
	case key == "layer_types":
		if strings.Count(value, `"full_attention"`) != strings.Count(value, ",")+1 {
			d.Sink.Fail(d.O, key, "some layers do not attend to everything before them", "")
		}
	case key == "rope_parameters":
		d.ropeParameters(value)
	case key == "intermediate_size" && d.f.Doubled:
		d.half(key, value)
	case d.Sink.Has(source.ModelKeys+"."+key) && !slices.Contains([]string{"qk_norm", "parameters", "names", "source"}, key):
		d.Set(key, value)
	default:
		return false
	}
	return true
}

// Set enters a value, as JSON, of a key of ours.
func (d *Decoder) Set(key, value string) {
	node, err := source.ParseValue(value)
	if err != nil {
		d.Sink.Fail(d.O, key, "cannot be read: "+err.Error(), "")
		return
	}
	d.Sink.Add(source.ModelKeys+"."+key, node, d.O)
}

func (d *Decoder) half(key, value string) {
	var n int
	if err := json.Unmarshal([]byte(value), &n); err != nil || n%2 != 0 {
		d.Sink.Fail(d.O, key, value+", want an even integer: gate and up together", "")
		return
	}
	d.Set(key, fmt.Sprint(n/2))
}

// ropeParameters splits the form of transformers 5 into rope_theta and rope_scaling.
func (d *Decoder) ropeParameters(value string) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(value), &all); err != nil {
		d.Sink.Fail(d.O, "rope_parameters", "is no JSON object", "")
		return
	}
	if theta, ok := all["rope_theta"]; ok {
		d.Set("rope_theta", string(theta))
		delete(all, "rope_theta")
	}
	if part, ok := all["partial_rotary_factor"]; ok {
		d.key("partial_rotary_factor", string(part))
		delete(all, "partial_rotary_factor")
	}
	rest, err := json.Marshal(all)
	if err != nil {
		panic(fmt.Sprintf("hf: JSON that was decoded is none: %v", err))
	}
	d.Set("rope_scaling", string(rest))
}
