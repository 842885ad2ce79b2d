package configs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// LoongForge's composed models: an image encoder, a projector and a foundation below model, each with a class. Classes and
// specs are names in tables here; nothing of them is run.

// loongPart is a class of encoders or projectors.
type loongPart struct {
	kind   string            // of vision tower, or of projector
	gated  bool              // its MLP is gated
	rms    bool              // RMS norms
	norms  bool              // either norm
	preset map[string]string // our keys that its files do not say
	why    string            // the reason why it is refused
}

// loongEncoders are classes of image encoders.
var loongEncoders = map[string]*loongPart{
	"Qwen2VisionModelConfig":   {kind: "qwen2_vl", preset: map[string]string{"temporal_patch_size": "2", "hidden_act": "quick_gelu"}},
	"Qwen2VisionRMSNormConfig": {kind: "qwen2_5_vl", gated: true, rms: true, preset: map[string]string{"temporal_patch_size": "2", "hidden_act": "silu", "rms_norm": "true", "window_size": "112", "fullatt_block_indexes": "[7, 15, 23, 31]", "tokens_per_second": "2"}},
	"Qwen3VisionModelConfig":   {kind: "qwen3_vl", preset: map[string]string{"temporal_patch_size": "2", "patch_size": "16", "hidden_act": "gelu_pytorch_tanh", "num_position_embeddings": "2304"}},
	"Qwen35VisionConfig":       {kind: "qwen3_vl", preset: map[string]string{"temporal_patch_size": "2", "patch_size": "16", "hidden_act": "gelu_pytorch_tanh", "num_position_embeddings": "2304"}},
	"InternVisionConfig":       {kind: "internvl", norms: true, preset: map[string]string{"image_size": "448", "projector": "internvl"}},
	"RiceVisionConfig":         {kind: "rice", preset: map[string]string{"hidden_act": "gelu"}},
	"SiglipVisionConfig":       {kind: "siglip", preset: map[string]string{"hidden_act": "gelu_pytorch_tanh"}},
	"MoonVisionModelConfig":    {why: "MoonViT's sizes in time and its interpolation of positions are not built; Kimi's and GLM's decoders are none that can be trained either"},
	"MiniCPMV46VisionConfig":   {why: "MiniCPM-V's merger inside the tower is not built"},
	"ErnieVisionConfig":        {why: "Ernie's tower belongs to a mixture of experts for pictures and texts, which is not part of dense families"},
}

// loongProjectors are classes of projectors.
var loongProjectors = map[string]*loongPart{
	"MLPAdapterConfig":            {kind: "merger"},
	"PatchMergerMLPAdapterConfig": {kind: "merger"},
	"InternMLPAdapterConfig":      {kind: "internvl"},
	"MiniCPMV46MergerConfig":      {why: "MiniCPM-V's merger is not built"},
	"ErnieAdapterConfig":          {why: "Ernie's projector joins patches in time, which is not built"},
}

// loongVisionKeys are keys of image encoders with ours.
var loongVisionKeys = map[string]string{
	"num_layers": "depth", "hidden_size": "hidden_size", "ffn_hidden_size": "intermediate_size", "num_attention_heads": "num_heads", "patch_size": "patch_size",
	"in_channels": "in_channels", "spatial_merge_size": "merge", "temporal_patch_size": "temporal_patch_size", "layernorm_epsilon": "layer_norm_eps",
	"norm_epsilon": "layer_norm_eps", "deepstack_visual_indexes": "deepstack_visual_indexes", "num_position_embeddings": "num_position_embeddings",
	"window_size": "window_size", "fullatt_block_indexes": "fullatt_block_indexes", "image_token_id": "image_token_id", "initializer_factor": "layer_scale_init_value",
	"original_num_attention_heads": "num_heads",
}

// loongPartIdle are keys of encoders and projectors with no meaning here besides those of loongIdle and idleFlags.
var loongPartIdle = set("convert_file", "position_embedding_type", "num_query_groups", "original_num_query_groups", "kv_channels", "class_token_len", "rotary_interleaved",
	"sequence_parallel", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size", "rotary_base", "rotary_percent", "add_position_embedding",
	"make_vocab_size_divisible_by", "recompute_method", "recompute_num_layers", "init_method_std", "bf16", "fp16", "rotary_seq_len_interpolation_factor", "max_position_embeddings")

// loongRegular are keys of model besides its parts.
var loongRegular = set("model_type", "position_idx_func", "loss_func", "mix_used_vision_encoder", "mix_used_vision_projector", "vision_token_id", "peft_config", "_target_")

var loongActs = map[string]string{"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "quick_gelu": "quick_gelu", "silu": "silu", "relu": "relu"}

// loongVLM is a composed model that is being read.
type loongVLM struct {
	l             *loader
	top           Origin     // the file
	m             *hydraNode // model
	enc, proj, fd *hydraNode
	encoder       *loongPart
	projector     *loongPart
	text          string // family of the decoder
}

const visionKey = overrides + ".vision."

// loongComposed enters a file with the parts of a model.
func (l *loader) loongComposed(root, m *hydraNode) {
	for _, name := range root.keys {
		if name != "model" {
			l.unknown(root.kids[name].o, "", name)
		}
	}
	if m.kids == nil {
		l.fail(m.o, "model", m.kind()+", want a mapping", "")
		return
	}
	v := &loongVLM{l: l, top: root.o, m: m, enc: m.at("image_encoder"), proj: m.at("image_projector"), fd: m.at("foundation")}
	known := append(sortedKeys(loongRegular), "foundation", "image_encoder", "image_projector")
	for _, name := range m.keys {
		kid := m.kids[name]
		switch {
		case slices.Contains(known, name) || kid.null():
		case strings.HasPrefix(name, "video_") || strings.HasPrefix(name, "audio_"):
			l.fail(kid.o, "model."+name, "pictures and videos share the image encoder, and sound is not read", "remove it")
		default:
			l.fail(kid.o, "model."+name, "unknown key", didYouMean(name, known))
		}
	}
	ok := v.part("image_encoder", v.enc, "../image_encoder@model.image_encoder: qwen2_5_vit")
	ok = v.part("image_projector", v.proj, "../image_projector@model.image_projector: qwen_mlp_adapter") && ok
	ok = v.part("foundation", v.fd, "../qwen2.5@model.foundation: qwen2_5_7b") && ok
	if !ok {
		return
	}
	before := len(l.errs)
	v.encoder = v.class("image_encoder", v.enc, loongEncoders)
	v.projector = v.class("image_projector", v.proj, loongProjectors)
	v.decoder()
	if v.encoder == nil || v.projector == nil || v.text == "" {
		return
	}
	v.encoderKeys()
	v.projectorKeys()
	v.family()
	if len(l.errs) == before {
		v.lora()
	}
}

// loongElse are kinds of models below model that are no models of language and pictures, with what they are.
var loongElse = map[string]string{
	"pi05": ", but a policy for robots (Pi0.5)", "xvla": ", but a policy for robots (X-VLA)", "fastwam": ", but a policy for robots (FastWAM)",
	"cosmos3": ", but a policy for robots (Cosmos 3)", "dreamzero": ", but a policy for robots (DreamZero)", "lingbot_va": ", but a policy for robots (LingBot-VA)",
	"groot_n1_6": ", but a policy for robots (GR00T)", "groot_n1_7": ", but a policy for robots (GR00T)",
}

// part says whether a part is there.
func (v *loongVLM) part(name string, n *hydraNode, include string) bool {
	switch {
	case n == nil || n.null():
		v.l.fail(v.top, "model."+name, "is not given", "add to defaults: - "+include)
	case n.kids == nil:
		v.l.fail(n.o, "model."+name, n.kind()+", want a mapping", "")
	default:
		return true
	}
	return false
}

// class looks up the class of a part, nil if it cannot be trained.
func (v *loongVLM) class(name string, n *hydraNode, classes map[string]*loongPart) *loongPart {
	target := n.text("_target_")
	class := target[strings.LastIndex(target, ".")+1:]
	p := classes[class]
	o := n.o
	if kid := n.at("_target_"); kid != nil {
		o = kid.o
	}
	var able []string
	for _, c := range sortedKeys(classes) {
		if classes[c].why == "" {
			able = append(able, c)
		}
	}
	switch {
	case target == "":
		v.l.fail(o, "model."+name+"._target_", "is not given", oneOf(able))
	case p == nil:
		v.l.fail(o, "model."+name+"._target_", fmt.Sprintf("class %s is no %s", quoted(class), strings.ReplaceAll(name, "_", " ")), oneOf(able))
	case p.why != "":
		v.l.fail(o, "model."+name+"._target_", p.why, oneOf(able))
		return nil
	}
	return p
}

// set enters one of our keys.
func (v *loongVLM) set(key string, value *yaml.Node, o Origin) {
	v.l.add(setting{table().byName[key], value, o})
}

// preset enters a value that follows from a class: weaker than what any file says.
func (v *loongVLM) preset(key, value string, at *hydraNode) {
	node, err := parseValue(value)
	if err != nil {
		panic(fmt.Sprintf("configs: preset %s: %s: %v", key, value, err))
	}
	o := at.o
	o.Layer = LayerModel
	v.set(key, node, o)
}

// shared enters a key that any part may have, and says whether it was one.
func (v *loongVLM) shared(part, name string, kid *hydraNode, pattern string) bool {
	key := "model." + part + "." + name
	switch {
	case kid.null() || loongIdle[name] || loongPartIdle[name] || name == "_target_" || kid.kids != nil && name == "peft_config":
	case name == "freeze":
		v.l.loongFreeze(kid, key, pattern)
	case kid.kids != nil:
		v.l.fail(kid.o, key, "a mapping, want a value", "")
	case name == "lr":
		v.l.rates = append(v.l.rates, componentRate{map[string]string{"image_encoder": "encoder", "image_projector": "projector"}[part], setting{&Key{Name: key}, kid.value, kid.o}})
	case name == "recompute_granularity":
		v.set(map[string]string{"image_encoder": "plan.encoder.recompute", "image_projector": "plan.projector_recompute"}[part], kid.value, kid.o)
	case strings.HasPrefix(name, "fp8") || name == "selective_fp8":
		if !strings.EqualFold(kid.text(), "false") && kid.text() != "0" {
			v.l.fail(kid.o, key, refusedFlags["fp8-format"], "")
		}
	case name == "hidden_dropout" || name == "attention_dropout":
		if !sameValue(kid.text(), "0") {
			v.l.fail(kid.o, key, quoted(kid.text())+": towers here have no dropout", "set it to 0")
		}
	default:
		return idleFlags[strings.ReplaceAll(name, "_", "-")]
	}
	return true
}

// hold reports a switch that has another value than the part always has.
func (v *loongVLM) hold(key string, kid *hydraNode, want bool, why string) {
	if got := strings.EqualFold(kid.text(), "true"); got != want {
		v.l.fail(kid.o, key, fmt.Sprintf("%t: %s", got, why), fmt.Sprintf("set it to %t", want))
	}
}

func (v *loongVLM) encoderKeys() {
	e := v.encoder
	for _, key := range sortedKeys(e.preset) {
		v.preset(visionKey+key, e.preset[key], v.enc)
	}
	v.set(visionKey+"kind", scalarNode(e.kind), v.enc.at("_target_").o)
	for _, name := range v.enc.keys {
		kid, key := v.enc.kids[name], "model.image_encoder."+name
		if v.shared("image_encoder", name, kid, "visual.*") {
			continue
		}
		switch {
		case name == "tensor_model_parallel_size":
			v.set("plan.encoder.tp", kid.value, kid.o)
			v.l.encoderTP = kid.o
		case name == "num_attention_heads" && v.enc.at("original_num_attention_heads") != nil:
			v.l.c.Notices = append(v.l.c.Notices, fmt.Sprintf("%s: %s heads, of which %s carry weights: the others are zeros that LoongForge adds so that they divide, and are not built",
				key, kid.text(), v.enc.text("original_num_attention_heads")))
		case loongVisionKeys[name] != "":
			v.set(visionKey+loongVisionKeys[name], kid.value, kid.o)
		case name == "image_size":
			if e.kind == "internvl" || e.kind == "siglip" {
				v.size(key, kid)
			}
		case name == "activation_func":
			v.act(key, kid, e)
		case name == "normalization":
			v.norm(key, kid, e)
		case name == "swiglu" || name == "gated_linear_unit":
			v.hold(key, kid, e.gated, "not so in "+e.kind+"'s tower")
		case name == "add_bias_linear":
			v.hold(key, kid, true, "the linear layers of towers here have biases, as in published checkpoints")
		case name == "add_qkv_bias" && e.kind == "internvl":
			v.set(visionKey+"attention_bias", kid.value, kid.o)
		case name == "add_qkv_bias":
			v.hold(key, kid, true, "query, key and value have biases in "+e.kind+"'s tower")
		case name == "qk_layernorm" && e.kind == "internvl":
			v.set(visionKey+"use_qk_norm", kid.value, kid.o)
		case name == "qk_layernorm":
			v.hold(key, kid, false, "queries and keys have no norm in "+e.kind+"'s tower")
		default:
			known := slices.Concat(sortedKeys(loongVisionKeys), sortedKeys(loongPartIdle), []string{"freeze", "tensor_model_parallel_size", "recompute_granularity", "activation_func", "normalization",
				"add_bias_linear", "add_qkv_bias", "qk_layernorm", "swiglu", "gated_linear_unit", "image_size", "lr"})
			v.l.fail(kid.o, key, "unknown key of an image encoder", didYouMean(name, known))
		}
	}
	v.heads()
}

// heads holds the width of heads, and their number, to what towers have.
func (v *loongVLM) heads() {
	heads := v.enc.text("original_num_attention_heads")
	if heads == "" {
		heads = v.enc.text("num_attention_heads")
	}
	n, err1 := strconv.Atoi(heads)
	d, err2 := strconv.Atoi(v.enc.text("hidden_size"))
	if err1 != nil || err2 != nil || n < 1 {
		return // reported as it is decoded
	}
	if kv := v.enc.at("kv_channels"); kv != nil && kv.scalar() && d%n == 0 && !sameValue(kv.text(), strconv.Itoa(d/n)) {
		v.l.fail(kv.o, "model.image_encoder.kv_channels", fmt.Sprintf("%s, but hidden_size / num_attention_heads = %d / %d = %d", kv.text(), d, n, d/n), fmt.Sprintf("set it to %d", d/n))
	}
	for _, name := range []string{"original_num_query_groups", "num_query_groups"} {
		groups := v.enc.at(name)
		if groups == nil || !groups.scalar() || name == "num_query_groups" && v.enc.at("original_num_query_groups") != nil {
			continue
		}
		if !sameValue(groups.text(), heads) {
			v.l.fail(groups.o, "model.image_encoder."+name, fmt.Sprintf("%s for %s heads: towers here have as many keys as queries", groups.text(), heads), "set it to "+heads)
		}
	}
}

// size enters the side of square pictures.
func (v *loongVLM) size(key string, kid *hydraNode) {
	value := kid.value
	if value.Kind == yaml.SequenceNode {
		if len(value.Content) != 2 || value.Content[0].Value != value.Content[1].Value {
			v.l.fail(kid.o, key, "want one side, or two equal ones", "")
			return
		}
		value = value.Content[0]
	}
	v.set(visionKey+"image_size", value, kid.o)
}

func (v *loongVLM) act(key string, kid *hydraNode, e *loongPart) {
	act := loongActs[kid.text()]
	switch {
	case act == "":
		v.l.fail(kid.o, key, fmt.Sprintf("%s is no activation", quoted(kid.text())), oneOf(sortedKeys(loongActs)))
	case e.gated && act != "silu":
		v.l.fail(kid.o, key, fmt.Sprintf("%s, but the gate of %s's tower has silu", kid.text(), e.kind), "set it to silu")
	default:
		v.set(visionKey+"hidden_act", scalarNode(act), kid.o)
	}
}

func (v *loongVLM) norm(key string, kid *hydraNode, e *loongPart) {
	rms := kid.text() == "RMSNorm"
	switch {
	case !rms && kid.text() != "LayerNorm":
		v.l.fail(kid.o, key, quoted(kid.text())+", want RMSNorm or LayerNorm", "")
	case e.norms:
		v.set(visionKey+"rms_norm", scalarNode(strconv.FormatBool(rms)), kid.o)
	case rms != e.rms:
		v.l.fail(kid.o, key, fmt.Sprintf("%s, but %s's tower has %s", kid.text(), e.kind, normName(e.rms)), "set it to "+normName(e.rms))
	}
}

func normName(rms bool) string {
	if rms {
		return "RMSNorm"
	}
	return "LayerNorm"
}

func (v *loongVLM) projectorKeys() {
	hidden := v.fd.text("hidden_size")
	v.set(visionKey+"projector", scalarNode(v.projector.kind), v.proj.at("_target_").o)
	for _, name := range v.proj.keys {
		kid, key := v.proj.kids[name], "model.image_projector."+name
		switch {
		case v.shared("image_projector", name, kid, "projector.*"):
		case name == "tensor_model_parallel_size":
			if tp := v.enc.text("tensor_model_parallel_size"); kid.text() != tp && !(tp == "" && kid.text() == "1") {
				v.l.fail(kid.o, key, fmt.Sprintf("%s, but the projector runs on the encoder's ranks, with tp %s", kid.text(), orOne(tp)), "set model.image_encoder.tensor_model_parallel_size instead")
			}
		case name == "hidden_size", name == "ffn_hidden_size" && v.projector.kind == "internvl":
			if hidden != "" && !sameValue(kid.text(), hidden) {
				v.l.fail(kid.o, key, fmt.Sprintf("the projector is %s wide, the foundation %s (model.foundation.hidden_size)", kid.text(), hidden), "set it to "+hidden)
			}
		case name == "ffn_hidden_size":
			v.joined(key, kid)
		case name == "activation_func":
			if act := loongActs[kid.text()]; act == "" {
				v.l.fail(kid.o, key, fmt.Sprintf("%s is no activation", quoted(kid.text())), oneOf(sortedKeys(loongActs)))
			} else if v.projector.kind == "merger" && act != "gelu" {
				v.l.fail(kid.o, key, fmt.Sprintf("%s, but patch mergers here have gelu", kid.text()), "set it to gelu")
			} else {
				v.set(visionKey+"projector_hidden_act", scalarNode(act), kid.o)
			}
		case name == "normalization":
			want := v.projector.kind == "merger" && v.encoder.rms
			if kid.text() != normName(want) {
				v.l.fail(kid.o, key, fmt.Sprintf("%s, but the projector behind %s's tower has %s", quoted(kid.text()), v.encoder.kind, normName(want)), "set it to "+normName(want))
			}
		case name == "add_bias_linear":
			v.hold(key, kid, true, "the linear layers of projectors here have biases")
		case name == "swiglu" || name == "gated_linear_unit":
			v.hold(key, kid, false, "projectors here are not gated")
		case name == "layernorm_epsilon" || name == "norm_epsilon":
			if eps := v.projectorEps(); !sameValue(kid.text(), eps) {
				v.l.c.Notices = append(v.l.c.Notices, fmt.Sprintf("%s: %s, but the norm of this projector has %s here", key, kid.text(), eps))
			}
		case name == "in_dim":
			if d := v.enc.text("hidden_size"); d != "" && !sameValue(kid.text(), d) {
				v.l.fail(kid.o, key, fmt.Sprintf("the projector takes rows of %s, the encoder gives %s (model.image_encoder.hidden_size)", kid.text(), d), "set it to "+d)
			}
		default:
			known := slices.Concat(sortedKeys(loongPartIdle), []string{"freeze", "hidden_size", "ffn_hidden_size", "activation_func", "normalization", "add_bias_linear", "layernorm_epsilon", "lr",
				"recompute_granularity", "tensor_model_parallel_size"})
			v.l.fail(kid.o, key, "unknown key of an image projector", didYouMean(name, known))
		}
	}
}

// projectorEps is the term under the root of the projector's norm.
func (v *loongVLM) projectorEps() string {
	if v.projector.kind == "internvl" || v.encoder.kind == "rice" {
		return "1e-5"
	}
	return "1e-6"
}

func orOne(tp string) string {
	if tp == "" {
		return "1"
	}
	return tp
}

// joined holds the inner width of a patch merger to that of the patches that it joins.
func (v *loongVLM) joined(key string, kid *hydraNode) {
	d, err := strconv.Atoi(v.enc.text("hidden_size"))
	merge := 2
	if m := v.enc.text("spatial_merge_size"); m != "" {
		merge, _ = strconv.Atoi(m) // reported as it is decoded
	}
	if want := d * merge * merge; err == nil && !sameValue(kid.text(), strconv.Itoa(want)) {
		v.l.fail(kid.o, key, fmt.Sprintf("%s, but the patches that are joined are %d · %d² = %d wide", kid.text(), d, merge, want), fmt.Sprintf("remove it, or set it to %d", want))
	}
}

// decoder enters the foundation.
func (v *loongVLM) decoder() {
	target := v.fd.text("_target_")
	v.text = loongClasses[target[strings.LastIndex(target, ".")+1:]]
	if target == "" {
		v.l.fail(v.fd.o, "model.foundation._target_", "is not given", oneOf(sortedKeys(loongClasses)))
		return
	}
	before := len(v.l.errs)
	v.l.loongDecoder(v.fd, "model.foundation.", "model.*", "lm_head.*")
	o := v.fd.at("_target_").o
	switch v.text {
	case "", "mimo":
		if len(v.l.errs) == before {
			v.l.fail(o, "model.foundation._target_", "layers that predict several tokens do not stand behind a vision encoder", "choose another foundation")
		}
		v.text = ""
	default:
		v.set(overrides+".text_model_type", scalarNode(v.text), o)
	}
}
