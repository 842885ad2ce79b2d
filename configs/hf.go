package configs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// hfFamily says how a family's config.json maps to Model.
type hfFamily struct {
	class      string            // that transformers loads it with
	qkNorm     bool              // queries and keys are normed
	bias       *bool             // whether query, key and value have biases; nil if the file says so
	mtp        bool              // may have multi-token-prediction layers
	plainHeads bool              // as many key as query heads
	alias      map[string]string // the family's own names of our keys
	only       map[string]string // keys that must have one value, as JSON
	doubled    bool              // intermediate_size counts gate and up together
	omit       []string          // our keys that its file does not have
}

var yes, no = true, false

// hfFamilies are the families by model_type.
var hfFamilies = map[string]hfFamily{
	"llama":     {class: "LlamaForCausalLM", bias: &no, only: map[string]string{"mlp_bias": "false"}},
	"qwen2":     {class: "Qwen2ForCausalLM", bias: &yes, omit: []string{"attention_bias"}},
	"qwen3":     {class: "Qwen3ForCausalLM", bias: &no, qkNorm: true},
	"internlm2": {class: "InternLM2ForCausalLM", bias: &no, alias: map[string]string{"bias": "attention_bias"}},
	"mimo":      {class: "MiMoForCausalLM", bias: &yes, mtp: true},
	"qwen": {class: "QWenLMHeadModel", bias: &yes, plainHeads: true, doubled: true,
		alias: map[string]string{"layer_norm_epsilon": "rms_norm_eps", "rotary_emb_base": "rope_theta", "kv_channels": "head_dim"},
		only:  map[string]string{"rotary_pct": "1.0", "no_bias": "true", "scale_attn_weights": "true", "emb_dropout_prob": "0.0", "attn_dropout_prob": "0.0"},
		omit:  []string{"attention_bias", "num_key_value_heads", "rope_scaling", "eos_token_id"}},
}

func familyNames() []string { return sortedKeys(hfFamilies) }

// hfOnly are keys that must have one value in every family: others would compute something else.
var hfOnly = map[string]string{
	"hidden_act": `"silu"`, "use_sliding_window": "false", "attention_dropout": "0.0", "partial_rotary_factor": "1.0",
}

// hfRefused are keys that must not be there at all, or be null.
var hfRefused = map[string]string{
	"quantization_config": "the weights are quantized: take the repository of the original ones",
	"num_experts":         "mixture-of-experts models are no dense family",
	"num_local_experts":   "mixture-of-experts models are no dense family",
	"kv_lora_rank":        "models with latent attention are no dense family",
}

// hfIdle are keys that say nothing about the arithmetic of training.
var hfIdle = set("_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache", "pad_token_id", "auto_map", "pretraining_tp",
	"sliding_window", "max_window_layers", "tokenizer_class", "attn_implementation", "chunk_size_feed_forward", "output_attentions",
	"output_hidden_states", "return_dict", "is_encoder_decoder", "id2label", "label2id", "problem_type", "unk_token_id",
	// Qwen 1: used when generating beyond seq_length, or to choose kernels
	"seq_length", "use_dynamic_ntk", "use_logn_attn", "use_flash_attn", "bf16", "fp16", "fp32", "onnx_safe", "softmax_in_fp32",
	"use_cache_quantization", "use_cache_kernel", "params_dtype", "attn_implementation_internal")

// decodeHF turns a config.json into settings. Keys that would change the arithmetic and that Model does not have are
// faults; the names of others that are not known come back for a notice.
func (l *loader) decodeHF(path string, text []byte) (unread []string) {
	o := Origin{Layer: LayerModel, File: path}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		l.fail(o, "", "is no JSON object: "+err.Error(), "")
		return nil
	}
	var family string
	_ = json.Unmarshal(raw["model_type"], &family) // what is no string is no family
	for name, c := range hfComposedFamilies {
		if c.alias != "" && c.alias == family {
			family = name
		}
	}
	if c, ok := hfComposedFamilies[family]; ok {
		return l.decodeComposed(family, c, raw, o)
	}
	f, ok := hfFamilies[family]
	if !ok {
		l.fail(o, "model_type", fmt.Sprintf("%s is no family that can be trained", quoted(family)), oneOf(append(familyNames(), sortedKeys(hfComposedFamilies)...)))
		return nil
	}
	d := &hfDecoder{l: l, f: f, o: o}
	for _, key := range sortedKeys(raw) {
		if !d.key(key, compact(raw[key])) {
			unread = append(unread, key)
		}
	}
	if f.qkNorm {
		d.set("qk_norm", "true")
	}
	if f.bias != nil && *f.bias {
		d.set("attention_bias", "true")
	}
	return unread
}

type hfDecoder struct {
	l *loader
	f hfFamily
	o Origin
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		panic(fmt.Sprintf("configs: JSON that was decoded is none: %v", err))
	}
	return b.String()
}

// key enters one key of the file and says whether it was known.
func (d *hfDecoder) key(key, value string) bool {
	if to, ok := d.f.alias[key]; ok {
		d.set(to, value)
		return true
	}
	only, ok := d.f.only[key]
	if !ok {
		only, ok = hfOnly[key]
	}
	switch {
	case value == "null" || hfIdle[key]:
	case ok:
		if !sameValue(only, value) {
			d.l.fail(d.o, key, fmt.Sprintf("%s, only %s can be trained", value, only), "")
		}
	case hfRefused[key] != "":
		d.l.fail(d.o, key, hfRefused[key], "")
	case key == "layer_types":
		if strings.Count(value, `"full_attention"`) != strings.Count(value, ",")+1 {
			d.l.fail(d.o, key, "some layers do not attend to everything before them", "")
		}
	case key == "rope_parameters":
		d.ropeParameters(value)
	case key == "intermediate_size" && d.f.doubled:
		d.half(key, value)
	case table().byName[overrides+"."+key] != nil && !slices.Contains([]string{"qk_norm", "parameters", "names", "source"}, key):
		d.set(key, value)
	default:
		return false
	}
	return true
}

func (d *hfDecoder) set(key, value string) {
	node, err := parseValue(value)
	if err != nil {
		d.l.fail(d.o, key, "cannot be read: "+err.Error(), "")
		return
	}
	d.l.add(setting{table().byName[overrides+"."+key], node, d.o})
}

func (d *hfDecoder) half(key, value string) {
	var n int
	if err := json.Unmarshal([]byte(value), &n); err != nil || n%2 != 0 {
		d.l.fail(d.o, key, value+", want an even integer: gate and up together", "")
		return
	}
	d.set(key, fmt.Sprint(n/2))
}

// ropeParameters splits the form of transformers 5 into rope_theta and rope_scaling.
func (d *hfDecoder) ropeParameters(value string) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(value), &all); err != nil {
		d.l.fail(d.o, "rope_parameters", "is no JSON object", "")
		return
	}
	if theta, ok := all["rope_theta"]; ok {
		d.set("rope_theta", string(theta))
		delete(all, "rope_theta")
	}
	if part, ok := all["partial_rotary_factor"]; ok {
		d.key("partial_rotary_factor", string(part))
		delete(all, "partial_rotary_factor")
	}
	rest, err := json.Marshal(all)
	if err != nil {
		panic(fmt.Sprintf("configs: JSON that was decoded is none: %v", err))
	}
	d.set("rope_scaling", string(rest))
}

// HFConfig writes the model as the config.json of its family, for an export that has no source directory to copy it
// from. dtype is the weights' type by torch's name, such as bfloat16.
func (m Model) HFConfig(dtype string) []byte {
	f := hfFamilies[m.decoder()]
	out := map[string]any{
		"model_type": m.ModelType, "architectures": m.Architectures, "hidden_act": "silu", "torch_dtype": dtype, "use_cache": true,
		"hidden_size": m.Hidden, "num_hidden_layers": m.Layers, "num_attention_heads": m.Heads, "num_key_value_heads": m.KVHeads,
		"head_dim": m.HeadDim, "intermediate_size": m.Intermediate, "vocab_size": m.Vocab, "max_position_embeddings": m.MaxPositions,
		"rms_norm_eps": m.NormEps, "rope_theta": m.RopeTheta, "rope_scaling": m.RopeScaling.hf(), "tie_word_embeddings": m.TieEmbeddings,
		"attention_bias": m.AttentionBias, "initializer_range": m.InitRange, "bos_token_id": nil, "eos_token_id": nil,
	}
	if m.BOS >= 0 {
		out["bos_token_id"] = m.BOS
	}
	switch len(m.EOS) {
	case 0:
	case 1:
		out["eos_token_id"] = m.EOS[0]
	default:
		out["eos_token_id"] = m.EOS
	}
	if f.mtp {
		out["num_nextn_predict_layers"] = m.MTPLayers
	}
	if f.doubled {
		out["intermediate_size"] = 2 * m.Intermediate
	}
	for _, key := range f.omit {
		delete(out, key)
	}
	for from, to := range f.alias {
		out[from] = out[to]
		delete(out, to)
	}
	for key, value := range f.only {
		out[key] = json.RawMessage(value)
	}
	if _, composed := hfComposedFamilies[m.ModelType]; composed {
		out = m.composedConfig(out)
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("configs: a model cannot be JSON: %v", err))
	}
	return append(text, '\n')
}

// hf is the scaling as config.json has it, nil for none.
func (r RopeScaling) hf() any {
	if r.None() {
		return nil
	}
	out := map[string]any{"rope_type": r.Type}
	for key, v := range map[string]float64{"factor": r.Factor, "low_freq_factor": r.LowFreqFactor, "high_freq_factor": r.HighFreqFactor,
		"beta_fast": r.BetaFast, "beta_slow": r.BetaSlow, "attention_factor": r.AttentionFactor, "mscale": r.MScale, "mscale_all_dim": r.MScaleAllDim} {
		if v != 0 {
			out[key] = v
		}
	}
	if len(r.Sections) > 0 {
		out["mrope_section"] = r.Sections
		if r.Interleaved {
			out["mrope_interleaved"] = true
		}
		if r.Type == "" {
			out["rope_type"] = "default"
		}
	}
	if r.OriginalMax != 0 {
		out["original_max_position_embeddings"] = r.OriginalMax
	}
	return out
}
