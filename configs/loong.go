package configs

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// LoongForge's model files: a class in _target_, includes in defaults, and otherwise Megatron's argument names. With
// --config-file its own precedence holds: what such a file says beats the flag.

// loongClasses maps the last word of _target_ to a family. QwenConfig serves Qwen 1 and 1.5, whose weights differ in
// names: convert_file tells them apart.
var loongClasses = map[string]string{
	"LLaMAConfig": "llama", "QwenConfig": "qwen2", "Qwen2Config": "qwen2", "Qwen3Config": "qwen3",
	"InternLMConfig": "internlm2", "MimoConfig": "mimo",
}

// loongOnly are keys that must have the value dense families here have anyway.
var loongOnly = map[string]string{
	"swiglu": "true", "gated_linear_unit": "true", "activation_func": "silu", "add_bias_linear": "false",
	"add_position_embedding": "false", "rotary_interleaved": "false",
}

// loongIdle are keys with no meaning here besides those of idleFlags.
var loongIdle = set("model_type", "model_spec", "rotary_emb_func", "word_embeddings_for_head", "max_sequence_length",
	"mtp_loss_scaling_factor_decay_ratio", "fp8_dynamic_num_tokens", "fp8_dynamic_policy_path", "bias_activation_fusion", "bias_dropout_fusion", "persist_layer_norm", "group_query_attention")

// isLoong says whether --config-file names a file of that kind.
func (l *loader) isLoong(args []string) bool {
	for i, arg := range args {
		path, ok := strings.CutPrefix(arg, "--config-file=")
		if arg == "--config-file" && i+1 < len(args) {
			path, ok = args[i+1], true
		}
		if ok {
			return LoongFile(path)
		}
	}
	return false
}

// LoongFile says whether a file is one of LoongForge's: a class in _target_, a defaults list, or the parts of a model below
// model. A file that cannot be read is none.
func LoongFile(path string) bool {
	text, err := readFile(path)
	if err != nil {
		return false // whoever reads it reports it
	}
	root, err := parseYAML(path, text)
	if err != nil {
		return false
	}
	if lookup(root, "_target_") != nil || lookup(root, "defaults") != nil {
		return true
	}
	m := lookup(root, "model")
	return m != nil && slices.ContainsFunc([]string{"foundation", "image_encoder", "image_projector", "model_type"}, func(key string) bool { return lookup(m, key) != nil })
}

// ModelFile says whether a file has the keys of Model at its top level.
func ModelFile(path string) bool {
	text, err := readFile(path)
	if err != nil {
		return false // whoever reads it reports it
	}
	root, err := parseYAML(path, text)
	return err == nil && lookup(root, "_target_") == nil && lookup(root, "model_type") != nil && (lookup(root, "hidden_size") != nil || lookup(root, "text_preset") != nil)
}

// lookup returns the value of a key of a mapping, or nil.
func lookup(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// configFile enters --config-file: a LoongForge model file, or one of our own.
func (l *loader) configFile(values []string, o Origin) {
	if len(values) != 1 {
		l.fail(o, "", "the flag wants one file", "")
		return
	}
	l.add(setting{table().byName["model.file"], scalarNode(values[0]), o})
	if l.loong {
		l.loongPath = values[0]
	}
}

// loongRead composes and enters the model file of --config-file, with the overrides that are for it.
func (l *loader) loongRead() {
	if l.loongPath == "" {
		return
	}
	before := len(l.errs)
	if filepath.Base(filepath.Dir(l.loongPath)) == "ckpt_convert" {
		l.fail(Origin{Layer: LayerLoong, File: l.loongPath}, "", loongConversion, "name the model's file")
	} else if h := l.compose(l.loongPath, l.loongArgs); h != nil {
		l.loongFile(h)
	}
	if len(l.frozen) > 0 {
		l.add(setting{table().byName["freeze"], listNode(l.frozen), l.frozenAt})
	}
	if l.ropeFactor != "" {
		l.fail(Origin{Layer: LayerFlag, Text: "--rope-scaling-factor"}, "", refusedFlags["rope-scaling-factor"], "")
	}
	l.loongFaults += len(l.errs) - before
}

// loongFile enters a composed file: a dense model's keys, or the parts of a model with a vision encoder.
func (l *loader) loongFile(h *hydra) {
	root := h.tree
	target := root.text("_target_")
	class := target[strings.LastIndex(target, ".")+1:]
	if why := loongOther(root, class); why != "" {
		l.fail(root.o, "", why, "")
		return
	}
	h.resolve(root, nil)
	if m := root.at("model"); m != nil && target == "" {
		l.loongComposed(root, m)
		return
	}
	if target == "" {
		l.fail(root.o, "_target_", "is not given: the file has neither a dense model nor the parts of one below model", "")
		return
	}
	l.loongDecoder(root, "", "*")
	if peft := root.at("peft_config"); peft != nil && peft.kids != nil {
		l.loongLoRA(peft, "peft_config.", loongDecoderTargets)
	}
}

const loongConversion = "names weights for a conversion: checkpoints are read and written in Hugging Face's names, none is needed"

// loongOther says why a file of LoongForge's is none of a model that can be trained from it.
func loongOther(root *hydraNode, class string) string {
	m := root.at("model")
	switch {
	case m != nil && m.kids != nil && class == "" && m.at("foundation") == nil && m.at("image_encoder") == nil && m.at("image_projector") == nil:
		return "has neither model.foundation nor model.image_encoder nor model.image_projector: it is no model of language and pictures" + loongElse[m.text("model_type")]
	case root.at("args") != nil && class == "":
		return loongConversion
	case strings.HasSuffix(class, "LoraConfig"):
		return "is a part, low-rank additions: name it in defaults, as in - ../lora@peft_config: lora"
	case loongEncoders[class] != nil:
		return "is a part, an image encoder: compose it with a projector and a foundation in a file with model: and defaults:"
	case loongProjectors[class] != nil:
		return "is a part, an image projector: compose it with an encoder and a foundation in a file with model: and defaults:"
	}
	return ""
}

// loongDecoder enters the keys of a language model; prefix is what stands before their names, all the parameters that freeze
// means.
func (l *loader) loongDecoder(n *hydraNode, prefix string, all ...string) {
	if target := n.at("_target_"); target != nil && target.scalar() && !l.loongFamily(n, prefix) {
		return // its keys would be none of ours
	}
	heads := n.at("group_query_attention") == nil || n.on("group_query_attention")
	for _, name := range n.keys {
		kid := n.kids[name]
		o, value := kid.o, kid.value
		switch {
		case kid.kids != nil && name == "peft_config":
		case kid.kids != nil && o.File == "":
			l.unknown(o, "", name)
		case kid.kids != nil:
			l.fail(o, prefix+name, "a mapping, want a value", "")
		case kid.null() || name == "num_query_groups" && !heads:
		case name == "_target_":
		case name == "freeze":
			l.loongFreeze(kid, prefix+name, all...)
		case name == "make_vocab_size_divisible_by":
			if why, try := setValue(reflect.ValueOf(&l.c.VocabUnit).Elem(), value); why != "" {
				l.fail(o, prefix+name, why, try)
			}
		case name == "mrope_section" && prefix != "":
		case loongIdle[name] || name == "convert_file":
		case loongOnly[name] != "":
			if strings.ToLower(value.Value) != loongOnly[name] {
				l.fail(o, prefix+name, fmt.Sprintf("%s, but dense families here have %s", quoted(value.Value), loongOnly[name]), "")
			}
		default:
			l.loongKey(prefix, name, value, o)
		}
	}
}

// loongFreeze enters a switch that freezes parameters.
func (l *loader) loongFreeze(n *hydraNode, key string, patterns ...string) {
	switch strings.ToLower(n.text()) {
	case "true":
		l.frozen = append(l.frozen, patterns...)
		l.frozenAt = n.o
	case "false":
	default:
		l.fail(n.o, key, n.kind()+", want true or false", "")
	}
}

// loongKey enters a key that has the name of a Megatron argument.
func (l *loader) loongKey(prefix, name string, value *yaml.Node, o Origin) {
	flag := strings.ReplaceAll(name, "_", "-")
	k := table().byFlag[flag]
	off := strings.EqualFold(value.Value, "false")
	switch {
	case k != nil:
		if f := k.Flags[slices.IndexFunc(k.Flags, func(f Flag) bool { return f.Name == flag })]; f.Value != "" {
			value = loongSwitch(k, f, value)
		}
		if value != nil {
			l.add(setting{k, value, o})
		}
	case idleFlags[flag]:
	case onlyFlags[flag] != nil:
		if !slices.ContainsFunc(onlyFlags[flag].values, func(v string) bool { return sameValue(v, value.Value) }) {
			l.fail(o, prefix+name, fmt.Sprintf("%s: %s", quoted(value.Value), onlyFlags[flag].why), "")
		}
	case off && (refusedFlags[flag] != "" || name == "fp8" || name == "fp8_param" || name == "selective_fp8"):
	case name == "fp8" || name == "fp8_param" || name == "selective_fp8":
		l.fail(o, prefix+name, refusedFlags["fp8-format"], "")
	case refusedFlags[flag] != "" || strings.HasPrefix(name, "moe_"):
		why := refusedFlags[flag]
		if why == "" {
			why = refusedFlags["num-experts"]
		}
		l.fail(o, prefix+name, why, "")
	default:
		try := strings.ReplaceAll(didYouMean(flag, knownFlags()), "-", "_")
		l.fail(o, prefix+name, "unknown key of a LoongForge model file", try)
	}
}

// loongSwitch is the value that a key like qk_layernorm: true stands for, nil if it stands for none.
func loongSwitch(k *Key, f Flag, value *yaml.Node) *yaml.Node {
	on := strings.EqualFold(value.Value, "true")
	switch {
	case on:
		return scalarNode(f.Value)
	case k.Type != "boolean":
		return nil
	case f.Value == "true":
		return scalarNode("false")
	}
	return scalarNode("true")
}

// loongFamily enters the class of a language model and says whether it can be trained.
func (l *loader) loongFamily(n *hydraNode, prefix string) bool {
	target, o := n.text("_target_"), n.at("_target_").o
	class := target[strings.LastIndex(target, ".")+1:]
	family, ok := loongClasses[class]
	if !ok {
		why := loongRefused[class]
		if why == "" {
			why = "is no dense family"
		}
		l.fail(o, prefix+"_target_", fmt.Sprintf("class %s: %s", quoted(class), why), oneOf(sortedKeys(loongClasses)))
		return false
	}
	if class == "QwenConfig" && filepath.Base(n.text("convert_file")) == "qwen_convert.yaml" {
		family = "qwen"
	}
	if prefix == "" {
		l.add(setting{table().byName[overrides+".model_type"], scalarNode(family), o})
	}
	return true
}

// loongRefused are classes of models that cannot be trained, with the reason.
var loongRefused = map[string]string{
	"DeepseekConfig":   "latent attention and mixtures of experts are not part of dense families",
	"DeepseekV4Config": "sparse attention and mixtures of experts are not part of dense families",
	"GlmConfig":        "latent attention and mixtures of experts are not part of dense families",
	"MinimaxConfig":    "mixtures of experts are not part of dense families",
	"ErnieMoeConfig":   "mixtures of experts are not part of dense families",
	"Qwen35Config":     "layers of linear attention are not part of dense families",
	"Qwen3NextConfig":  "layers of linear attention and mixtures of experts are not part of dense families",
	"WanConfig":        "is a diffusion model, no language model",
	"QwenImageConfig":  "is a diffusion model, no language model",
}

// loongTargets are Megatron's fused linears by the parts they have here.
type loongTargets struct {
	prefix string // of the names of the parameters that are meant
	parts  map[string][]string
}

var loongDecoderTargets = loongTargets{"*.", map[string][]string{
	"linear_qkv": {"q_proj", "k_proj", "v_proj"}, "linear_proj": {"o_proj"}, "linear_fc1": {"gate_proj", "up_proj"}, "linear_fc2": {"down_proj"},
}}

// loongLoRA enters low-rank additions to the linears of one or more sorts.
func (l *loader) loongLoRA(n *hydraNode, prefix string, sorts ...loongTargets) {
	keys := map[string]string{"dim": "lora.rank", "alpha": "lora.alpha", "dropout": "lora.dropout"}
	idle := set("_target_", "dropout_position", "lora_A_init_method", "lora_B_init_method", "lora_dtype", "a2a_experimental",
		"apply_to_foundation", "apply_to_image_encoder", "apply_to_image_projector", "apply_to_video_encoder", "apply_to_video_projector")
	for _, name := range n.keys {
		kid := n.kids[name]
		switch {
		case idle[name]:
		case kid.kids == nil && keys[name] != "":
			l.add(setting{table().byName[keys[name]], kid.value, kid.o})
		case kid.kids == nil && name == "target_modules":
			l.loongTargets(kid, prefix+name, sorts)
		default:
			known := append(slices.Concat(sortedKeys(keys), sortedKeys(idle)), "target_modules")
			l.fail(kid.o, prefix+name, "unknown key of a LoongForge LoRA file", didYouMean(name, known))
		}
	}
}

func (l *loader) loongTargets(n *hydraNode, key string, sorts []loongTargets) {
	items := []*yaml.Node{n.value}
	if n.value.Kind == yaml.SequenceNode {
		items = n.value.Content
	}
	var targets []string
	for _, item := range items {
		for _, sort := range sorts {
			prefix, last := sort.prefix, item.Value
			if i := strings.LastIndex(item.Value, "."); i >= 0 {
				prefix, last = item.Value[:i+1], item.Value[i+1:]
			}
			parts := sort.parts[last]
			if parts == nil {
				l.fail(n.o, key, fmt.Sprintf("%s is no linear layer of the model", quoted(item.Value)), oneOf(sortedKeys(sort.parts)))
			}
			for _, p := range parts {
				targets = append(targets, prefix+p)
			}
		}
	}
	l.add(setting{table().byName["lora.targets"], listNode(targets), n.o})
}
