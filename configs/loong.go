package configs

import (
	"fmt"
	"path/filepath"
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
	"swiglu": "true", "gated_linear_unit": "true", "activation_func": "${act:silu}", "add_bias_linear": "false",
	"add_position_embedding": "false", "rotary_interleaved": "false",
}

// loongIdle are keys with no meaning here besides those of idleFlags.
var loongIdle = set("model_type", "model_spec", "rotary_emb_func", "word_embeddings_for_head", "max_sequence_length",
	"mtp_loss_scaling_factor_decay_ratio", "fp8_dynamic_num_tokens")

// isLoong says whether --config-file names a file of that kind.
func (l *loader) isLoong(args []string) bool {
	for i, arg := range args {
		path, ok := strings.CutPrefix(arg, "--config-file=")
		if arg == "--config-file" && i+1 < len(args) {
			path, ok = args[i+1], true
		}
		if !ok {
			continue
		}
		text, err := readFile(path)
		if err != nil {
			return false // configFile reports it
		}
		root, err := parseYAML(path, text)
		return err == nil && (lookup(root, "_target_") != nil || lookup(root, "defaults") != nil)
	}
	return false
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
	if !l.loong {
		return
	}
	before := len(l.errs)
	l.loongFile(values[0])
	l.loongFaults += len(l.errs) - before
}

// yamlFile reads and parses a file; what is wrong is noted, and nil returned.
func (l *loader) yamlFile(path string) *yaml.Node {
	text, err := readFile(path)
	if err == nil {
		var root *yaml.Node
		if root, err = parseYAML(path, text); err == nil {
			return root
		}
	}
	l.errs = append(l.errs, err)
	return nil
}

func (l *loader) loongFile(file string) {
	root := l.yamlFile(file)
	if root == nil {
		return
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		name, value := root.Content[i].Value, root.Content[i+1]
		o := Origin{Layer: LayerLoong, File: file, Line: root.Content[i].Line}
		switch {
		case value.Tag == "!!null":
		case name == "_target_":
			l.loongFamily(root, value.Value, o)
		case name == "defaults":
			l.loongDefaults(value, o)
		case name == "peft_config" && value.Kind == yaml.MappingNode:
			l.loongLoRA(value, o)
		case name == "freeze":
			if value.Value == "true" {
				l.add(setting{table().byName["freeze"], listNode([]string{"*"}), o})
			}
		case loongIdle[name] || name == "convert_file":
		case loongOnly[name] != "":
			if v := strings.ToLower(value.Value); v != loongOnly[name] && "${act:"+v+"}" != loongOnly[name] {
				l.fail(o, name, fmt.Sprintf("%s, but dense families here have %s", quoted(value.Value), loongOnly[name]), "")
			}
		default:
			l.loongKey(name, value, o)
		}
	}
}

// loongKey enters a key that has the name of a Megatron argument.
func (l *loader) loongKey(name string, value *yaml.Node, o Origin) {
	flag := strings.ReplaceAll(name, "_", "-")
	k := table().byFlag[flag]
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
			l.fail(o, name, fmt.Sprintf("%s: %s", quoted(value.Value), onlyFlags[flag].why), "")
		}
	case refusedFlags[flag] != "" || strings.HasPrefix(name, "moe_"):
		why := refusedFlags[flag]
		if why == "" {
			why = refusedFlags["num-experts"]
		}
		l.fail(o, name, why, "")
	default:
		l.fail(o, name, "unknown key of a LoongForge model file", didYouMean(flag, knownFlags()))
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

func (l *loader) loongFamily(root *yaml.Node, target string, o Origin) {
	class := target[strings.LastIndex(target, ".")+1:]
	family, ok := loongClasses[class]
	if !ok {
		l.fail(o, "_target_", fmt.Sprintf("class %s is no dense family", quoted(class)), oneOf(sortedKeys(loongClasses)))
		return
	}
	if c := lookup(root, "convert_file"); class == "QwenConfig" && c != nil && filepath.Base(c.Value) == "qwen_convert.yaml" {
		family = "qwen"
	}
	l.add(setting{table().byName[overrides+".model_type"], scalarNode(family), o})
}

// loongDefaults reads the includes of a defaults list. A dense model has one kind: a LoRA file, at peft_config.
func (l *loader) loongDefaults(list *yaml.Node, o Origin) {
	for _, item := range list.Content {
		o.Line = item.Line
		if item.Kind == yaml.ScalarNode && item.Value == "_self_" {
			continue
		}
		dir, pkg, ok := "", "", false
		if item.Kind == yaml.MappingNode && len(item.Content) == 2 {
			dir, pkg, ok = strings.Cut(item.Content[0].Value, "@")
		}
		if !ok || pkg != "peft_config" {
			l.fail(o, "defaults", "a dense model includes nothing but path@peft_config: name", "")
			continue
		}
		path := filepath.Join(filepath.Dir(o.File), dir, item.Content[1].Value+".yaml")
		if root := l.yamlFile(path); root != nil {
			l.loongLoRA(root, Origin{Layer: LayerLoong, File: path})
		}
	}
}

// loongTargets are Megatron's fused linears by the parts they have here.
var loongTargets = map[string][]string{
	"linear_qkv": {"q_proj", "k_proj", "v_proj"}, "linear_proj": {"o_proj"}, "linear_fc1": {"gate_proj", "up_proj"}, "linear_fc2": {"down_proj"},
}

func (l *loader) loongLoRA(n *yaml.Node, o Origin) {
	keys := map[string]string{"dim": "lora.rank", "alpha": "lora.alpha", "dropout": "lora.dropout"}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i].Value, n.Content[i+1]
		o.Line = n.Content[i].Line
		switch {
		case name == "_target_":
		case keys[name] != "":
			l.add(setting{table().byName[keys[name]], value, o})
		case name == "target_modules":
			l.loongTargets(value, o)
		default:
			l.fail(o, "peft_config."+name, "unknown key of a LoongForge LoRA file", didYouMean(name, append(sortedKeys(keys), "target_modules")))
		}
	}
}

func (l *loader) loongTargets(list *yaml.Node, o Origin) {
	var targets []string
	for _, item := range list.Content {
		prefix, last := "*.", item.Value
		if i := strings.LastIndex(item.Value, "."); i >= 0 {
			prefix, last = item.Value[:i+1], item.Value[i+1:]
		}
		parts := loongTargets[last]
		if parts == nil {
			l.fail(o, "peft_config.target_modules", fmt.Sprintf("%s is no linear layer of a dense model", quoted(item.Value)), oneOf(sortedKeys(loongTargets)))
		}
		for _, p := range parts {
			targets = append(targets, prefix+p)
		}
	}
	l.add(setting{table().byName["lora.targets"], listNode(targets), o})
}
