// Package hf reads and writes Hugging Face's config.json: how each family's keys map to ours.
package hf

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/lfactor/lfactor/configs/source"
)

// Family says how a decoder's config.json maps to Model.
type Family struct {
	Class  string `yaml:"class"`  // that loads it
	Remote bool   `yaml:"remote"` // the class is not part of transformers
	// a model of diffusion: its file is diffusers', which names the class and no model_type, or lerobot's,
	// which names the type
	Diffusers bool   `yaml:"-"`
	Unturned  bool   `yaml:"unturned"` // no rotary embedding turns its heads, which may be odd
	Type      string `yaml:"type"`     // another model_type of the same family, as its own code has it
	// ours that every model of the family has, as JSON, whether its file says so or not
	Fixed map[string]string `yaml:"fixed"`
	// ours of Has that models of the family have in a run file that does not say, as JSON; what config.json
	// leaves out is in Absent
	Usual map[string]string `yaml:"usual"`
	// optional keys of ours that its models may set (those of configs.Model that are tagged "some")
	Has        []string          `yaml:"optional"`
	Absent     map[string]string `yaml:"defaults"`    // ours, as JSON, where the file does not say: transformers' defaults
	Alias      map[string]string `yaml:"alias"`       // the family's own names of our keys
	Only       map[string]string `yaml:"only"`        // keys that must have one value, as JSON
	PlainHeads bool              `yaml:"plain_heads"` // as many key as query heads
	Doubled    bool              `yaml:"doubled"`     // intermediate_size counts gate and up together
	Omit       []string          `yaml:"omit"`        // our keys that its file does not have
	Idle       []string          `yaml:"idle"`        // keys of its own that say nothing about the arithmetic of training
	Whole      []string          `yaml:"integers"`    // keys of numbers that transformers wants as integers
	// optional keys of ours that a run may set, while a file's value is passed over with a note
	Offered []string `yaml:"offered"`
	// the largest values of numbers of ours that its checkpoints have a place for
	Most map[string]int `yaml:"most"`
	// keys of dropout, which training does not have here: a note says so where they are not 0
	Dropouts []string `yaml:"dropouts"`
	Null     []string `yaml:"null_is_zero"` // ours of Has whose null in the file is our 0, not a default

	// of families with experts, in Megatron's words: what a router takes of logits, softmax, sigmoid or
	// sqrtsoftplus; whether numbers of their own help to choose; and whether a softmax is over all experts
	// and its weights stay as they are
	Score     string `yaml:"score"`
	Corrected bool   `yaml:"corrected"`
	Early     bool   `yaml:"early"`
	// of families with an indexer: neighbouring numbers of its heads turn together
	IndexPairs bool `yaml:"index_pairs"`

	// attention_bias is one of the projection behind attention too, not of query, key and value alone
	OutBias bool `yaml:"output_bias"`
	// brings a file to the form that its keys are read in; may be nil
	Prepare func(raw Raw) `yaml:"-"`
	// keys that are no settings, but that settings follow from
	Own []Own `yaml:"-"`
	// what the tables do not say, after all keys; may be nil
	Read  func(d *Decoder, raw map[string]json.RawMessage) `yaml:"-"`
	Write func(m Values, out map[string]any)               `yaml:"-"` // the same of writing; may be nil
}

// AnyAct lets files of a family name the activation of its MLPs, unless that is fixed, its code is no part of
// transformers, or the activation is that of experts or of linear attention as well, which have one alone.
func (f Family) AnyAct() Family {
	one := func(key string) bool {
		return key == "hidden_act" || key == "num_experts" || key == "linear_num_key_heads"
	}
	if f.Remote || f.Diffusers || f.Fixed["hidden_act"] != "" || slices.ContainsFunc(f.Has, one) {
		return f
	}
	f.Has = append(slices.Clone(f.Has), "hidden_act")
	return f
}

// Behind reports whether a decoder of the family can stand behind a vision encoder.
func (f Family) Behind() bool {
	return !f.Diffusers && !slices.Contains(f.Has, "num_nextn_predict_layers")
}

// families are the decoders by model_type, as they are now.
var families atomic.Pointer[map[string]Family]

// Families are the decoders by model_type. Nobody may change the map.
func Families() map[string]Family {
	source.Filled()
	if f := families.Load(); f != nil {
		return *f
	}
	return nil // a program that registers none
}

// Replace has other decoders from now on: those of before are still seen by who has asked for them.
func Replace(all map[string]Family) { families.Store(&all) }

// Register enters a decoder family, before somebody asks for one.
func Register(modelType string, f Family) {
	if families.Load() == nil {
		Replace(map[string]Family{})
	}
	all := *families.Load()
	if _, dup := all[modelType]; dup {
		panic("hf: " + modelType + " registered twice")
	}
	all[modelType] = f
}

// Names are all families by model_type, decoders first.
func Names() []string {
	return append(source.SortedKeys(Families()), source.SortedKeys(ComposedFamilies)...)
}

// Behind are the decoders that can stand behind a vision encoder.
func Behind() (names []string) {
	for _, name := range source.SortedKeys(Families()) {
		if Families()[name].Behind() {
			names = append(names, name)
		}
	}
	return names
}

// Sink is a source.Sink that knows which keys only some families have.
type Sink interface {
	source.Sink
	// Optional says whether a key below model.overrides is one that only some families have, and the value
	// of the others.
	Optional(key string) (value string, some bool)
	// Type is the type of such a key, as integer, number, boolean, string or list of …; "" if there is no such key.
	Type(key string) string
}

// everywhere are keys that must have one value in every family: others would compute something else.
var everywhere = map[string]string{
	"hidden_act": `"silu"`, "use_sliding_window": "false", "attention_dropout": "0.0",
	"partial_rotary_factor": "1.0", "mlp_bias": "false",
}

// refused are keys that must not be there at all, or be null.
var refused = map[string]string{
	"num_experts":       "mixture-of-experts models are no dense family",
	"num_local_experts": "mixture-of-experts models are no dense family",
	"kv_lora_rank":      "models with latent attention are no dense family",
	"vlm_config":        piNested,
	"dit_config":        piNested,
}

const piNested = "sizes in mappings of transformers' own Pi0 are not read: take the folder that lerobot has of " +
	"the model"

// reasons say why keys of everywhere and of Only that programs take otherwise than transformers are refused.
var reasons = map[string]string{
	"partial_rotary_factor": "transformers' class of this family turns whole heads whatever it says, and other " +
		"programs a part of each: leave it out to train as transformers does",
	"norm_topk_prob": "transformers' class passes it over, and DeepSeek's own code divides by the sum: set it to " +
		"false to train as transformers does",
}

// idle are keys that say nothing about the arithmetic of training.
var idle = source.Set("_name_or_path", "type", "_class_name", "_diffusers_version", "transformers_version",
	"torch_dtype", "dtype", "use_cache", "pad_token_id", "auto_map", "pretraining_tp", "sliding_window",
	"max_window_layers", "tokenizer_class", "attn_implementation", "chunk_size_feed_forward", "output_attentions",
	"output_hidden_states", "return_dict", "is_encoder_decoder", "id2label", "label2id", "problem_type", "unk_token_id")

// Decode turns a config.json into settings. Keys that would change the arithmetic and that Model does not
// have are faults; the names of others that are not known come back for a notice.
func Decode(sink Sink, path string, text []byte) (unread []string) {
	o := source.Origin{Layer: source.LayerModel, File: path}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		sink.Fail(o, "", "is not a JSON object: "+err.Error(), "")
		return nil
	}
	var family string
	_ = json.Unmarshal(raw["model_type"], &family) // what is not a string is not a family
	if _, typed := raw["model_type"]; !typed {
		_ = json.Unmarshal(raw["_class_name"], &family) // the same
		if family == "" {
			_ = json.Unmarshal(raw["type"], &family) // of policies of lerobot; the same
		}
		if Families()[family].Diffusers {
			sink.Add(source.ModelKeys+".model_type", source.ScalarNode(family), o)
		}
	}
	for name, c := range ComposedFamilies {
		if c.Alias != "" && c.Alias == family {
			family = name
		}
	}
	for name, f := range Families() {
		if f.Type != "" && f.Type == family {
			family, raw["model_type"] = name, json.RawMessage(strconv.Quote(name))
		}
	}
	if c, ok := ComposedFamilies[family]; ok {
		return decodeComposed(sink, family, c, raw, o, lines(text))
	}
	f, ok := Families()[family]
	if !ok {
		sink.Fail(o, "model_type", fmt.Sprintf("%s is no family that can be trained",
			source.Quoted(family)), nearest(sink, family, raw))
		return nil
	}
	d := &Decoder{Sink: sink, O: o, f: f, lines: lines(text)}
	if f.Prepare != nil {
		f.Prepare(raw)
	}
	d.constants(raw)
	unread = d.keys(raw)
	d.follow(raw)
	return unread
}

// keys enters the keys of a mapping; the names of those that are not known come back.
func (d *Decoder) keys(raw Raw) (unread []string) {
	for _, key := range source.SortedKeys(raw) {
		d.at = d.line(key)
		if !d.shadowed(key, raw) && !d.key(key, Compact(raw[key])) {
			unread = append(unread, key)
		}
	}
	d.at = 0
	return unread
}

// follow enters what follows from the decoder's keys.
func (d *Decoder) follow(raw Raw) {
	for _, own := range d.f.Own {
		own.read(d, raw)
	}
	if d.f.Read != nil {
		d.f.Read(d, raw)
	}
	d.checkFull(raw)
}

// checkFull holds the length of a layer_types that is not a setting to the number of layers.
func (d *Decoder) checkFull(raw map[string]json.RawMessage) {
	var n int
	if d.full > 0 && json.Unmarshal(raw["num_hidden_layers"], &n) == nil && n != d.full {
		d.Fail("layer_types", fmt.Sprintf("%d entries for num_hidden_layers = %d", d.full, n), "")
	}
}

// Decoder enters the keys of one config.json.
type Decoder struct {
	Sink   Sink
	O      source.Origin // the file, without a line
	f      Family
	lines  map[string]int // of keys
	inside string         // what stands before the decoder's keys in lines
	at     int            // line of the key that is being entered, 0 for what the file does not say
	full   int            // entries of layer_types that are no setting
}

// constants enters what the family has anyway, and what the file leaves out: not what it says is null,
// which is transformers' None.
func (d *Decoder) constants(raw map[string]json.RawMessage) {
	for _, key := range source.SortedKeys(d.f.Fixed) {
		d.Set(key, d.f.Fixed[key])
	}
	said := map[string]bool{}
	for key := range raw {
		said[key], said[d.f.Alias[key]] = true, true
	}
	for _, key := range source.SortedKeys(d.f.Absent) {
		if !said[key] {
			d.Set(key, d.f.Absent[key])
		}
	}
}

// Compact is a value without white space.
func Compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		panic(fmt.Sprintf("hf: JSON that was decoded is none: %v", err))
	}
	return b.String()
}

// key enters one key of the file and says whether it was known.
func (d *Decoder) key(key, value string) bool {
	if value == "null" && slices.Contains(d.f.Null, key) {
		value = "0"
	}
	if slices.Contains(d.f.Dropouts, key) {
		d.noDropout(key, value)
		return true
	}
	if ours := cmp.Or(d.f.Alias[key], key); slices.Contains(d.f.Offered, ours) {
		if !source.SameValue(value, "0") && value != "null" {
			d.Sink.Note(fmt.Sprintf("%s: %s = %s: those layers are passed over and not trained; to "+
				"train them, set model.overrides.%s", d.O, key, value, ours))
		}
		return true
	}
	if to, ok := d.f.Alias[key]; ok && value != "null" {
		d.Set(to, value)
		return true
	}
	if slices.Contains(d.f.Has, key) && value != "null" {
		d.Set(key, value)
		return true
	}
	if d.f.Fixed[key] != "" && value != "null" {
		d.Set(key, value) // the check of the model compares
		return true
	}
	only, ok := d.f.Only[key]
	if !ok {
		only, ok = everywhere[key]
	}
	switch {
	case value == "null" || idle[key] || slices.Contains(d.f.Idle, key) || d.owns(key):
	case ok:
		if !source.SameValue(only, value) {
			d.Fail(key, fmt.Sprintf("%s, only %s can be trained", value, only), reasons[key])
		}
	case key == "quantization_config":
		if form, ok := dequantized(value); ok {
			d.Sink.Note(fmt.Sprintf("%s: quantization_config: weights are read from few bits, and exported without", d.O))
		} else {
			d.Fail(key, fmt.Sprintf("%s: the weights are quantized in a form that is not read (docs/checkpoints.md lists those that are): take "+
				"the repository of the original ones", form), "")
		}
	case refused[key] != "":
		d.Fail(key, refused[key], "")
	case key == "layer_types":
		d.layerTypes(value)
	case key == "rope_parameters", key == "rope_scaling" && strings.HasPrefix(value, "{"):
		d.ropeParameters(value)
	case key == "intermediate_size" && d.f.Doubled:
		d.half(key, value)
	case d.lacks(key, value):
	case d.Sink.Has(source.ModelKeys+"."+key) &&
		!slices.Contains([]string{"parameters", "active_parameters", "names", "source"}, key):
		d.Set(key, value)
	default:
		return false
	}
	return true
}

// noDropout notes a dropout that is not 0.
func (d *Decoder) noDropout(key, value string) {
	if !source.SameValue(value, "0") && value != "null" {
		d.Sink.Note(fmt.Sprintf("%s: %s = %s: training here has no dropout", d.O, key, value))
	}
}

// owns says whether a key is no setting, but one that settings of the family follow from.
func (d *Decoder) owns(key string) bool {
	has := func(o Own) bool { return slices.Contains(o.keys, key) }
	return !d.setting(key) && slices.ContainsFunc(d.f.Own, has)
}

// layerTypes holds the list of a family whose layers all attend to everything before them.
func (d *Decoder) layerTypes(value string) {
	var types []string
	if err := json.Unmarshal([]byte(value), &types); err != nil {
		d.Fail("layer_types", "is not a list of words", "")
		return
	}
	if slices.ContainsFunc(types, func(kind string) bool { return kind != "full_attention" }) {
		d.Fail("layer_types", "some layers do not attend to everything before them", "")
		return
	}
	d.full = len(types) // compared with num_hidden_layers when that is known
}

// lacks reports a key that other families have and this one has not, and says whether it is one.
func (d *Decoder) lacks(key, value string) bool {
	want, some := d.Sink.Optional(key)
	if some && !source.SameValue(want, value) {
		d.Fail(key, fmt.Sprintf("%s, only %s can be trained", value, want), "")
	}
	return some
}

// Set enters a value, as JSON, of a key of ours.
func (d *Decoder) Set(key, value string) {
	node, err := source.ParseValue(value)
	if err != nil {
		d.Fail(key, "cannot be read: "+err.Error(), "")
		return
	}
	if typ := d.Sink.Type(key); strings.HasPrefix(value, `"`) && (typ == "integer" || typ == "number" ||
		typ == "boolean") {
		d.Fail(key, fmt.Sprintf("%s is text, want a value of type %s", value, typ),
			"write it without quotes, as transformers wants it")
		return
	}
	o := d.O
	o.Line = d.at
	d.Sink.Add(source.ModelKeys+"."+key, node, o)
}

func (d *Decoder) half(key, value string) {
	var n int
	if err := json.Unmarshal([]byte(value), &n); err != nil || n%2 != 0 {
		d.Fail(key, value+", want an even integer: gate and up together", "")
		return
	}
	d.Set(key, fmt.Sprint(n/2))
}

// ropeByKind reads the parameters of layers with a window and of the others.
func (d *Decoder) ropeByKind(full string, sliding json.RawMessage) {
	var local struct {
		Theta json.RawMessage `json:"rope_theta"`
		Type  string          `json:"rope_type"`
	}
	if err := json.Unmarshal(sliding, &local); err != nil || local.Type != "" && local.Type != "default" {
		d.Fail("rope_parameters.sliding_attention", Compact(sliding)+", only rope_type default can be trained", "")
		return
	}
	if local.Theta != nil {
		d.Set("rope_local_base_freq", string(local.Theta))
	}
	d.ropeParameters(full)
}

// ropeParameters splits the form of transformers 5 into rope_theta and rope_scaling.
func (d *Decoder) ropeParameters(value string) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(value), &all); err != nil {
		d.Fail("rope_parameters", "is not a JSON object", "")
		return
	}
	if full, ok := all["full_attention"]; ok && slices.Contains(d.f.Has, "rope_local_base_freq") {
		d.ropeByKind(string(full), all["sliding_attention"])
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
