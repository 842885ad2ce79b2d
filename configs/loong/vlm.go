package loong

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/configs/hydra"
	"github.com/lfactor/lfactor/configs/megatron"
	"github.com/lfactor/lfactor/configs/source"
)

// LoongForge's composed models: an image encoder, a projector and a foundation below model, each with a
// class. Classes and specs are names in tables here; nothing of them is run.

// visionKeys are keys of image encoders with ours.
var visionKeys = map[string]string{
	"num_layers": "depth", "hidden_size": "hidden_size", "ffn_hidden_size": "intermediate_size",
	"num_attention_heads": "num_heads", "patch_size": "patch_size",
	"in_channels": "in_channels", "spatial_merge_size": "merge",
	"temporal_patch_size": "temporal_patch_size", "layernorm_epsilon": "layer_norm_eps",
	"norm_epsilon": "layer_norm_eps", "deepstack_visual_indexes": "deepstack_visual_indexes",
	"num_position_embeddings": "num_position_embeddings",
	"window_size":             "window_size", "fullatt_block_indexes": "fullatt_block_indexes",
	"image_token_id": "image_token_id", "initializer_factor": "layer_scale_init_value",
	"original_num_attention_heads": "num_heads",
}

// partIdle are keys of encoders and projectors with no meaning here besides those of
// decoderIdle and megatron.IdleFlags.
var partIdle = source.Set("convert_file", "rotary_interleaved", "sequence_parallel", "pipeline_model_parallel_size",
	"context_parallel_size", "expert_model_parallel_size", "rotary_base", "rotary_percent",
	"add_position_embedding", "make_vocab_size_divisible_by", "recompute_method", "recompute_num_layers",
	"init_method_std", "bf16", "fp16", "rotary_seq_len_interpolation_factor", "max_position_embeddings")

// heads are keys of encoders that the check of their heads looks at.
var heads = source.Set("num_query_groups", "original_num_query_groups", "kv_channels")

// regular are keys of model besides its parts.
var regular = source.Set("model_type", "position_idx_func", "loss_func", "mix_used_vision_encoder",
	"mix_used_vision_projector", "vision_token_id", "peft_config", "_target_")

var activations = map[string]string{"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh",
	"quick_gelu": "quick_gelu", "silu": "silu", "relu": "relu"}

// vlm is a composed model that is being read.
type vlm struct {
	l             *Reader
	top           source.Origin // the file
	m             *hydra.Node   // model
	enc, proj, fd *hydra.Node
	encoder       *Part
	projector     *Part
	foundation    Decoder
	text          string // family of the decoder
}

const visionKey = source.ModelKeys + ".vision."

// composed enters a file with the parts of a model.
func (l *Reader) composed(root, m *hydra.Node) {
	for _, name := range root.Keys {
		if name != "model" {
			l.Sink.Unknown(root.Kids[name].O, "", name)
		}
	}
	if m.Kids == nil {
		l.Sink.Fail(m.O, "model", m.Kind()+", want a mapping", "")
		return
	}
	v := &vlm{l: l, top: root.O, m: m, enc: m.At("image_encoder"), proj: m.At("image_projector"),
		fd: m.At("foundation")}
	known := append(source.SortedKeys(regular), "foundation", "image_encoder", "image_projector")
	for _, name := range m.Keys {
		kid := m.Kids[name]
		switch {
		case slices.Contains(known, name) || kid.Null():
		case strings.HasPrefix(name, "video_") || strings.HasPrefix(name, "audio_"):
			l.Sink.Fail(kid.O, "model."+name,
				"images and videos share the image encoder, and sound is not read", "remove it")
		default:
			l.Sink.Fail(kid.O, "model."+name, "unknown key", source.DidYouMean(name, known))
		}
	}
	ok := v.part("image_encoder", v.enc, "../image_encoder@model.image_encoder: qwen2_5_vit")
	ok = v.part("image_projector", v.proj, "../image_projector@model.image_projector: qwen_mlp_adapter") && ok
	ok = v.part("foundation", v.fd, "../qwen2.5@model.foundation: qwen2_5_7b") && ok
	if !ok {
		return
	}
	before := l.Sink.Faults()
	v.encoder = v.class("image_encoder", v.enc, encoders)
	v.projector = v.class("image_projector", v.proj, projectors)
	v.decoder()
	if v.encoder == nil || v.projector == nil || v.text == "" {
		return
	}
	v.encoderKeys()
	v.projectorKeys()
	v.family()
	if l.Sink.Faults() == before {
		v.lora()
	}
}

// part says whether a part is there.
func (v *vlm) part(name string, n *hydra.Node, include string) bool {
	switch {
	case n == nil || n.Null():
		v.l.Sink.Fail(v.top, "model."+name, "is not given", "add to defaults: - "+include)
	case n.Kids == nil:
		v.l.Sink.Fail(n.O, "model."+name, n.Kind()+", want a mapping", "")
	default:
		return true
	}
	return false
}

// class looks up the class of a part, nil if it cannot be trained.
func (v *vlm) class(name string, n *hydra.Node, classes map[string]*Part) *Part {
	target := n.Text("_target_")
	class := target[strings.LastIndex(target, ".")+1:]
	p := classes[class]
	o := n.O
	if kid := n.At("_target_"); kid != nil {
		o = kid.O
	}
	var able []string
	for _, c := range source.SortedKeys(classes) {
		if classes[c].Why == "" {
			able = append(able, c)
		}
	}
	switch {
	case target == "":
		v.l.Sink.Fail(o, "model."+name+"._target_", "is not given", source.OneOf(able))
	case p == nil:
		v.l.Sink.Fail(o, "model."+name+"._target_", fmt.Sprintf("class %s is no %s", source.Quoted(class),
			strings.ReplaceAll(name, "_", " ")), source.OneOf(able))
	case p.Why != "":
		v.l.Sink.Fail(o, "model."+name+"._target_", p.Why, source.OneOf(able))
		return nil
	}
	return p
}

// set enters one of our keys.
func (v *vlm) set(key string, value *yaml.Node, o source.Origin) {
	v.l.Sink.Add(key, value, o)
}

// preset enters a value that follows from a class: weaker than what any file says.
func (v *vlm) preset(key, value string, at *hydra.Node) {
	node, err := source.ParseValue(value)
	if err != nil {
		panic(fmt.Sprintf("configs: preset %s: %s: %v", key, value, err))
	}
	o := at.O
	o.Layer = source.LayerModel
	v.set(key, node, o)
}

// shared enters a key that any part may have, and says whether it was one.
func (v *vlm) shared(part, name string, kid *hydra.Node, pattern string) bool {
	key := "model." + part + "." + name
	switch {
	case kid.Null() || name == "_target_" || kid.Kids != nil && name == "peft_config":
	case name == "freeze":
		v.l.freeze(kid, key, pattern)
	case kid.Kids != nil:
		v.l.Sink.Fail(kid.O, key, "a mapping, want a value", "")
	case name == "lr":
		v.l.Rates = append(v.l.Rates, Rate{map[string]string{"image_encoder": "encoder",
			"image_projector": "projector"}[part], key, kid.Value, kid.O})
	case name == "recompute_granularity":
		v.set(map[string]string{"image_encoder": "plan.encoder.recompute",
			"image_projector": "plan.projector_recompute"}[part], kid.Value, kid.O)
	case strings.HasPrefix(name, "fp8") || name == "selective_fp8":
		if !strings.EqualFold(kid.Text(), "false") && kid.Text() != "0" {
			v.l.Sink.Fail(kid.O, key, megatron.RefusedFlags["fp8"], "")
		}
	case name == "hidden_dropout" || name == "attention_dropout":
		if !source.SameValue(kid.Text(), "0") {
			v.l.Sink.Fail(kid.O, key, source.Quoted(kid.Text())+": towers here have no dropout", "set it to 0")
		}
	default:
		return false
	}
	return true
}

// idle enters a key that has no meaning in a part of a model, and says whether it is one. It comes after
// all that have one.
func (v *vlm) idle(part, name string) bool {
	if heads[name] {
		return true
	}
	if !decoderIdle[name] && !partIdle[name] && !megatron.IdleFlags[strings.ReplaceAll(name, "_", "-")] {
		return false
	}
	v.l.without(v.partKey(part, name))
	return true
}

func (v *vlm) partKey(part, name string) string { return "model." + part + "." + name }

// hold reports a switch that has another value than the part always has.
func (v *vlm) hold(key string, kid *hydra.Node, want bool, why string) {
	if got := strings.EqualFold(kid.Text(), "true"); got != want {
		v.l.Sink.Fail(kid.O, key, fmt.Sprintf("%t: %s", got, why), fmt.Sprintf("set it to %t", want))
	}
}

// encoderKeys translates the settings of an image encoder key by key. What cannot differ in this
// tower is only compared.
func (v *vlm) encoderKeys() {
	e := v.encoder
	for _, key := range source.SortedKeys(e.Preset) {
		v.preset(visionKey+key, e.Preset[key], v.enc)
	}
	v.set(visionKey+"kind", source.ScalarNode(e.Kind), v.enc.At("_target_").O)
	for _, name := range v.enc.Keys {
		kid, key := v.enc.Kids[name], "model.image_encoder."+name
		if v.shared("image_encoder", name, kid, "visual.*") {
			continue
		}
		to, own := e.Keys[name]
		switch {
		case own && to == "":
			v.l.without(key)
		case own:
			v.set(visionKey+to, kid.Value, kid.O)
		case name == "tensor_model_parallel_size":
			v.set("plan.encoder.tp", kid.Value, kid.O)
			v.l.EncoderTP = kid.O
		case name == "num_attention_heads" && v.enc.At("original_num_attention_heads") != nil:
			v.l.Sink.Note(fmt.Sprintf("%s: %s heads, of which %s carry weights: the others are zeros "+
				"that LoongForge adds so that they divide, and are not built",
				key, kid.Text(), v.enc.Text("original_num_attention_heads")))
		case visionKeys[name] != "":
			v.set(visionKey+visionKeys[name], kid.Value, kid.O)
		case name == "image_size":
			if e.Sized {
				v.size(key, kid)
			} else { // images of any size
				v.l.without(key)
			}
		case name == "activation_func":
			v.act(key, kid, e)
		case name == "normalization":
			v.norm(key, kid, e)
		case name == "swiglu" || name == "gated_linear_unit":
			v.hold(key, kid, e.Gated, "not so in "+e.Kind+"'s tower")
		case name == "add_bias_linear":
			v.hold(key, kid, true, "the linear layers of towers here have biases, as in published checkpoints")
		case name == "add_qkv_bias" && e.Free:
			v.set(visionKey+"attention_bias", kid.Value, kid.O)
		case name == "add_qkv_bias":
			v.hold(key, kid, true, "query, key and value have biases in "+e.Kind+"'s tower")
		case name == "qk_layernorm" && e.Free:
			v.set(visionKey+"use_qk_norm", kid.Value, kid.O)
		case name == "qk_layernorm":
			v.hold(key, kid, false, "queries and keys have no norm in "+e.Kind+"'s tower")
		case name == "class_token_len":
			v.among(key, kid, "class tokens are "+e.Kind+"'s own", "0")
		case name == "position_embedding_type":
			v.among(key, kid, "positions are those of "+e.Kind+"'s tower",
				append([]string{"none"}, e.Positions...)...)
		case e.Only[name] != nil:
			v.fixed(key, kid, e.Only[name])
		case v.idle("image_encoder", name):
		default:
			known := slices.Concat(source.SortedKeys(visionKeys), source.SortedKeys(partIdle),
				[]string{"freeze", "tensor_model_parallel_size", "recompute_granularity", "activation_func",
					"normalization", "add_bias_linear", "add_qkv_bias", "qk_layernorm", "swiglu", "gated_linear_unit",
					"image_size", "lr"})
			v.l.Sink.Fail(kid.O, key, "unknown key of an image encoder", source.DidYouMean(name, known))
		}
	}
	v.heads()
}

// heads holds the width of heads, and their number, to what towers have.
func (v *vlm) heads() {
	heads := v.enc.Text("original_num_attention_heads")
	if heads == "" {
		heads = v.enc.Text("num_attention_heads")
	}
	n, err1 := strconv.Atoi(heads)
	d, err2 := strconv.Atoi(v.width())
	if err1 != nil || err2 != nil || n < 1 {
		return // reported as it is decoded
	}
	if kv := v.enc.At("kv_channels"); kv != nil && kv.Scalar() && d%n == 0 && !source.SameValue(kv.Text(),
		strconv.Itoa(d/n)) {
		v.l.Sink.Fail(kv.O, "model.image_encoder.kv_channels",
			fmt.Sprintf("%s, but hidden_size / num_attention_heads = %d / %d = %d", kv.Text(), d, n,
				d/n), fmt.Sprintf("set it to %d", d/n))
	}
	for _, name := range []string{"original_num_query_groups", "num_query_groups"} {
		groups := v.enc.At(name)
		if groups == nil || !groups.Scalar() {
			continue
		}
		heads := heads
		if name == "num_query_groups" && v.enc.At("original_num_query_groups") != nil { // with those of zeros
			heads = v.enc.Text("num_attention_heads")
		}
		if !source.SameValue(groups.Text(), heads) {
			v.l.Sink.Fail(groups.O, "model.image_encoder."+name,
				fmt.Sprintf("%s for %s heads: towers here have as many keys as queries", groups.Text(),
					heads), "set it to "+heads)
		}
	}
}

// among reports a value that is none of those that stand for what the part has anyway.
func (v *vlm) among(key string, kid *hydra.Node, why string, values ...string) {
	if !slices.ContainsFunc(values, func(x string) bool { return source.SameValue(x, kid.Text()) }) {
		v.l.Sink.Fail(kid.O, key, fmt.Sprintf("%s: %s", source.Quoted(kid.Text()), why), "set it to "+values[0])
		return
	}
	if len(values) > 1 {
		v.l.without(key)
	}
}

// act translates the activation of a tower; gated towers have silu alone.
func (v *vlm) act(key string, kid *hydra.Node, e *Part) {
	act := activations[kid.Text()]
	switch {
	case act == "":
		v.l.Sink.Fail(kid.O, key, fmt.Sprintf("%s is not an activation", source.Quoted(kid.Text())),
			source.OneOf(source.SortedKeys(activations)))
	case e.Gated && act != "silu":
		v.l.Sink.Fail(kid.O, key, fmt.Sprintf("%s, but the gate of %s's tower has silu", kid.Text(),
			e.Kind), "set it to silu")
	default:
		v.set(visionKey+"hidden_act", source.ScalarNode(act), kid.O)
	}
}

func (v *vlm) norm(key string, kid *hydra.Node, e *Part) {
	rms := kid.Text() == "RMSNorm"
	switch {
	case !rms && kid.Text() != "LayerNorm":
		v.l.Sink.Fail(kid.O, key, source.Quoted(kid.Text())+", want RMSNorm or LayerNorm", "")
	case e.Norms:
		v.set(visionKey+"rms_norm", source.ScalarNode(strconv.FormatBool(rms)), kid.O)
	case rms != e.RMS:
		v.l.Sink.Fail(kid.O, key, fmt.Sprintf("%s, but %s's tower has %s", kid.Text(), e.Kind,
			normName(e.RMS)), "set it to "+normName(e.RMS))
	}
}

func normName(rms bool) string {
	if rms {
		return "RMSNorm"
	}
	return "LayerNorm"
}

func (v *vlm) projectorKeys() {
	hidden := v.fd.Text("hidden_size")
	v.set(visionKey+"projector", source.ScalarNode(v.projector.Kind), v.proj.At("_target_").O)
	for _, name := range v.proj.Keys {
		kid, key := v.proj.Kids[name], "model.image_projector."+name
		switch {
		case v.shared("image_projector", name, kid, "projector.*"):
		case name == "tensor_model_parallel_size":
			if tp := v.enc.Text("tensor_model_parallel_size"); kid.Text() != tp && !(tp == "" && kid.Text() == "1") {
				v.l.Sink.Fail(kid.O, key,
					fmt.Sprintf("%s, but the projector runs on the encoder's ranks, with tp %s", kid.Text(),
						orOne(tp)), "set model.image_encoder.tensor_model_parallel_size instead")
			}
		case name == "hidden_size", name == "out_dim", name == "ffn_hidden_size" && v.projector.Square:
			if hidden != "" && !source.SameValue(kid.Text(), hidden) {
				v.l.Sink.Fail(kid.O, key,
					fmt.Sprintf("the projector is %s wide, the foundation %s (model.foundation.hidden_size)",
						kid.Text(), hidden), "set it to "+hidden)
			}
		case name == "ffn_hidden_size":
			v.joined(key, kid)
		case name == "activation_func":
			if act := activations[kid.Text()]; act == "" {
				v.l.Sink.Fail(kid.O, key, fmt.Sprintf("%s is not an activation", source.Quoted(kid.Text())),
					source.OneOf(source.SortedKeys(activations)))
			} else if v.projector.Joins && act != "gelu" {
				v.l.Sink.Fail(kid.O, key, fmt.Sprintf("%s, but patch mergers here have gelu", kid.Text()),
					"set it to gelu")
			} else {
				v.set(visionKey+"projector_hidden_act", source.ScalarNode(act), kid.O)
			}
		case name == "normalization":
			want := v.projector.Joins && v.encoder.RMS
			if kid.Text() != normName(want) {
				v.l.Sink.Fail(kid.O, key, fmt.Sprintf("%s, but the projector behind %s's tower has %s",
					source.Quoted(kid.Text()), v.encoder.Kind, normName(want)), "set it to "+normName(want))
			}
		case name == "add_bias_linear":
			v.hold(key, kid, true, "the linear layers of projectors here have biases")
		case name == "swiglu" || name == "gated_linear_unit":
			v.hold(key, kid, false, "projectors here are not gated")
		case name == "layernorm_epsilon" || name == "norm_epsilon":
			if eps := v.projectorEps(); !source.SameValue(kid.Text(), eps) {
				v.l.Sink.Note(fmt.Sprintf("%s: %s, but the norm of this projector has %s here", key, kid.Text(), eps))
			}
		case name == "in_dim":
			if d := v.width(); d != "" && !source.SameValue(kid.Text(), d) {
				v.l.Sink.Fail(kid.O, key, fmt.Sprintf("the projector takes rows of %s, the encoder gives %s "+
					"(model.image_encoder.hidden_size)", kid.Text(), d), "set it to "+d)
			}
		case v.projector.Only[name] != nil:
			v.fixed(key, kid, v.projector.Only[name])
		case v.idle("image_projector", name):
		default:
			known := slices.Concat(source.SortedKeys(partIdle), []string{"freeze", "hidden_size",
				"ffn_hidden_size", "activation_func", "normalization", "add_bias_linear", "layernorm_epsilon",
				"lr", "recompute_granularity", "tensor_model_parallel_size"})
			v.l.Sink.Fail(kid.O, key, "unknown key of an image projector", source.DidYouMean(name, known))
		}
	}
}

// projectorEps is the term under the root of the projector's norm.
func (v *vlm) projectorEps() string {
	if v.projector.Eps != "" {
		return v.projector.Eps
	}
	return cmp.Or(v.encoder.MergerEps, "1e-6")
}

func orOne(tp string) string {
	if tp == "" {
		return "1"
	}
	return tp
}

// joined holds the inner width of a patch merger to that of the patches that it joins.
func (v *vlm) joined(key string, kid *hydra.Node) {
	d, err := strconv.Atoi(v.width())
	merge := 2
	if m := v.enc.Text("spatial_merge_size"); m != "" {
		merge, _ = strconv.Atoi(m) // reported as it is decoded
	}
	if want := d * merge * merge; err == nil && !source.SameValue(kid.Text(), strconv.Itoa(want)) {
		v.l.Sink.Fail(kid.O, key, fmt.Sprintf("%s, but the patches that are joined are %d · %d² = %d wide",
			kid.Text(), d, merge, want), fmt.Sprintf("remove it, or set it to %d", want))
	}
}

// decoder enters the foundation.
func (v *vlm) decoder() {
	target := v.fd.Text("_target_")
	v.foundation, _ = decoderOf(target[strings.LastIndex(target, ".")+1:], v.fd)
	v.text = v.foundation.Family
	if target == "" {
		v.l.Sink.Fail(v.fd.O, "model.foundation._target_", "is not given", source.OneOf(classNames()))
		return
	}
	before := v.l.Sink.Faults()
	v.l.decoder(v.fd, "model.foundation.", "model.*", "lm_head.*")
	o := v.fd.At("_target_").O
	switch {
	case v.text == "" || v.foundation.Alone:
		if v.l.Sink.Faults() == before {
			v.l.Sink.Fail(o, "model.foundation._target_",
				"layers that predict several tokens do not stand behind a vision encoder",
				"choose another foundation")
		}
		v.text = ""
	default:
		v.set(source.ModelKeys+".text_model_type", source.ScalarNode(v.text), o)
	}
}
