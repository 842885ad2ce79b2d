package decoders

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/stages/family"
)

// describeOwn enters the family that a user's text describes.
func describeOwn(text string) (modelType string, err error) {
	source.Filled()
	n, err := mapping([]byte(text))
	if err != nil {
		return "", err
	}
	lines := map[string]int{}
	number(n, "", lines)
	d, err := describe(n, nodes)
	if err != nil {
		return "", undescribed(err)
	}
	if lines["config.class"] == 0 { // that of what it is like loads other models
		d.Config.Class = ""
	}
	if lines["paper"] == 0 {
		d.Paper = ""
	}
	if key, why := d.fault(); why != "" {
		line := 0
		for line == 0 && key != "" { // what a description is like says it, not the text
			if line = lines[key]; line == 0 {
				key, _, _ = cutLast(key)
			}
			if !strings.Contains(key, ".") && line == 0 {
				break
			}
		}
		return "", &configs.Undescribed{Line: line, Why: why}
	}
	family.Describe(text, d.family())
	return d.ModelType, nil
}

// number notes the lines of keys.
func number(n *yaml.Node, at string, lines map[string]int) {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		key := at + n.Content[i].Value
		lines[key] = n.Content[i].Line
		number(n.Content[i+1], key+".", lines)
	}
}

// undescribed is an error of decoding as a fault at its line.
func undescribed(err error) error {
	var fault *configs.Undescribed
	if errors.As(err, &fault) {
		return fault
	}
	text := strings.TrimSpace(strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:"))
	first, _, _ := strings.Cut(text, "\n")
	at, why, ok := strings.Cut(strings.TrimPrefix(first, "line "), ": ")
	line, bad := strconv.Atoi(at)
	if !ok || bad != nil {
		return &configs.Undescribed{Why: first}
	}
	return &configs.Undescribed{Line: line, Why: why}
}

var typeNames = regexp.MustCompile(`^[a-z][a-z0-9_]{1,63}$`)

// fault says what is wrong with a user's description, and at which key.
func (d Description) fault() (key, why string) {
	switch {
	case !typeNames.MatchString(d.ModelType):
		return "model_type", fmt.Sprintf("model_type: %s, want a name of one's own of small letters, digits and _",
			source.Quoted(d.ModelType))
	case nodes[d.ModelType] != nil || family.Registered(d.ModelType).ModelType != "":
		return "model_type", "model_type: " + d.ModelType + " is a family that lfactor has: take another name, and this as like"
	case len(d.Loong) > 0:
		return "loong", "loong: classes of LoongForge are of its own families"
	}
	f := d.Config
	lists := map[string][]string{"optional": f.Has, "offered": f.Offered, "fixed": source.SortedKeys(f.Fixed),
		"usual": source.SortedKeys(f.Usual), "defaults": source.SortedKeys(f.Absent), "most": source.SortedKeys(f.Most),
		"alias": slices.Sorted(maps.Values(f.Alias))}
	for _, at := range source.SortedKeys(lists) {
		for _, k := range lists[at] {
			if !configs.ModelKey(k) {
				return "config." + at, fmt.Sprintf("config.%s: %s is no key of model.overrides", at, source.Quoted(k))
			}
		}
	}
	for _, r := range d.Rules {
		c := conditions[r.name]
		if r.n < c.least {
			return "rules", fmt.Sprintf("rules: %s: %d, want at least %d", r.name, r.n, c.least)
		}
		if _, err := strconv.Atoi(d.Config.Absent[c.defaults]); c.defaults != "" && err != nil {
			return "rules", fmt.Sprintf("rules: %s needs %s among config.defaults, a whole number", r.name, c.defaults)
		}
	}
	if key, why := d.needs(); why != "" {
		return key, why
	}
	l := d.Layers
	for i, kinds := range [][]string{l.Mixers, l.MLPs} {
		for _, kind := range kinds {
			if known := family.Kinds(i == 1); !slices.Contains(known, kind) {
				key := []string{"layers.mixers", "layers.mlps"}[i]
				return key, fmt.Sprintf("%s: %s is no kind: %s", key, source.Quoted(kind), source.OneOf(known))
			}
		}
	}
	if key, why := d.numbers(); why != "" {
		return key, why
	}
	return d.places()
}

// needs holds what layers are made of to the keys and rules that they read.
func (d Description) needs() (key, why string) {
	has := func(keys ...string) string {
		for _, k := range keys {
			if !slices.Contains(d.Config.Has, k) && d.Config.Fixed[k] == "" {
				return k
			}
		}
		return ""
	}
	l := d.Layers
	needs := map[string][]string{}
	if l.Experts != nil {
		needs["layers.experts"] = []string{"num_experts", "num_experts_per_tok"}
		if dense[l.Experts.Dense] == nil {
			return "layers.experts.dense", "layers.experts.dense: want first, steps or interval, or leave it out"
		}
	}
	if l.Attention.Latent {
		needs["layers.attention"] = family.LatentNames
	}
	if slices.Contains(l.Mixers, "sliding_attention") {
		needs["layers.mixers"] = []string{"sliding_window"}
	}
	of := func(kind string) bool { return slices.Contains(l.Mixers, kind) }
	ruled := func(name string) bool {
		return slices.ContainsFunc(d.Rules, func(r named) bool { return r.name == name })
	}
	switch linear := []string{"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
		"linear_conv_kernel_dim"}; {
	case of(family.LinearAttention) && !ruled("linear_attention"):
		return "layers.mixers", "layers.mixers: linear_attention needs the rule linear_attention"
	case of(family.ConvMixer) && !ruled("short_convolution"):
		return "layers.mixers", "layers.mixers: conv needs the rule short_convolution"
	case of("latent_attention") && !l.Attention.Latent || of("indexed_attention") && !l.Attention.Indexer:
		return "layers.mixers", "layers.mixers: latent attention needs layers.attention.latent, or indexer"
	case slices.Contains(l.MLPs, "experts") && l.Experts == nil:
		return "layers.mlps", "layers.mlps: experts needs layers.experts"
	case l.Attention.Indexer && !ruled("indexed"):
		return "layers.attention", "layers.attention.indexer needs the rule indexed"
	case ruled("linear_attention"):
		needs["rules"] = linear
	case ruled("short_convolution"):
		needs["rules"] = linear[4:]
	}
	if l.Attention.Indexer {
		needs["layers.attention"] = family.LatentNames
	}
	for _, at := range source.SortedKeys(needs) {
		if k := has(needs[at]...); k != "" {
			return at, at + " needs " + k + " among config.optional"
		}
	}
	return "", ""
}

// numbers holds what stands for numbers to keys that there are.
func (d Description) numbers() (key, why string) {
	l := d.Layers
	all := map[string]Number{"layers.attention.scale": l.Attention.Scale, "layers.embedding.scale": l.Embedding.Scale,
		"layers.logits.scale": l.Logits.Scale, "layers.further_tokens.stored": l.Further.Stored}
	if e := l.Experts; e != nil {
		all["layers.experts.normalize"], all["layers.experts.scale"] = e.Normalize, e.Scale
		if e.Shared != nil {
			all["layers.experts.shared.width"] = e.Shared.Width
		}
	}
	for _, key := range source.SortedKeys(all) {
		text := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(string(all[key]), "1/"), "sqrt("), ")")
		if _, err := strconv.ParseFloat(text, 64); err == nil || text == "" {
			continue
		}
		if _, ok := (configs.Model{}).Number(text); !ok {
			return key, fmt.Sprintf("%s: %s is no number and no key of numbers, as hidden_size or 1/sqrt(head_dim)", key,
				source.Quoted(string(all[key])))
		}
	}
	return "", ""
}

// places holds words that say where tensors lie to those that there are.
func (d Description) places() (key, why string) {
	for i, n := range []*Names{d.Names, d.Other} {
		at := []string{"names", "other_names"}[i]
		if n == nil {
			continue
		}
		if !slices.Contains([]string{"", "behind_last", "beside"}, n.Further) {
			return at + ".further_tokens", at + ".further_tokens: want behind_last or beside"
		}
		if !slices.Contains([]string{"", "by_head", "in_order"}, n.Linear) {
			return at + ".linear", at + ".linear: want by_head or in_order"
		}
		for _, j := range n.Joined {
			for _, part := range j.Parts {
				if !slices.Contains([]string{"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"}, part) {
					return at + ".joined", fmt.Sprintf("%s.joined: %s is no part: want of q_proj, k_proj, v_proj, or of "+
						"gate_proj and up_proj", at, source.Quoted(part))
				}
			}
		}
	}
	return "", ""
}
