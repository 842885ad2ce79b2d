package decoders

import (
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/stages/family"
)

// Description says what a family of decoders is: which keys its config.json has, what its layers compute and what
// checkpoints call its tensors. What a description does not say is as in Llama.
type Description struct {
	ModelType string `yaml:"model_type"` // Hugging Face's
	// family whose description this one begins with: mappings are merged, and a list that begins with "..." goes on
	Like  string `yaml:"like"`
	Paper string `yaml:"paper"`
	// keys of config.json
	Config hf.Family `yaml:"config"`
	// LoongForge's classes of the family
	Loong []class `yaml:"loong"`
	// functions of Go by name (rules), each with a number or without, for what the other fields cannot say
	Rules  []named `yaml:"rules"`
	Layers Layers  `yaml:"layers"`
	// where checkpoints keep tensors, and where a second kind of checkpoints does; nil for the names of ours
	Names *Names `yaml:"names"`
	Other *Names `yaml:"other_names"`
}

// named is the name of a rule, and its number: "name" or "{name: number}".
type named struct {
	name string
	n    int
}

// UnmarshalYAML reads both forms.
func (r *named) UnmarshalYAML(n *yaml.Node) error {
	r.name = n.Value
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 {
		r.name = n.Content[0].Value
		if err := n.Content[1].Decode(&r.n); err != nil {
			return err
		}
	}
	if rules[r.name] == nil {
		return &configs.Undescribed{Line: n.Line, Why: fmt.Sprintf("%s is no rule: %s", source.Quoted(r.name),
			source.OneOf(source.SortedKeys(rules)))}
	}
	return nil
}

// class is a class of LoongForge's, as loong.Decoder has it.
type class struct {
	Class   string            `yaml:"class"`
	Convert string            `yaml:"convert"`
	Mixed   bool              `yaml:"mixed"`
	Alone   bool              `yaml:"alone"`
	Preset  map[string]string `yaml:"preset"`
	Tokens  string            `yaml:"tokens"` // qwen, for those of Qwen's vocabulary
}

//go:embed described/*.yaml
var described embed.FS

func init() {
	source.Later(fill)
	configs.RegisterDescriber(describeOwn)
}

// nodes are the descriptions of fill by family.
var nodes = map[string]*yaml.Node{}

// fill registers the families that are described here.
func fill() {
	entries, err := described.ReadDir("described")
	if err != nil {
		panic(fmt.Sprintf("decoders: %v", err))
	}
	for _, e := range entries {
		text, err := described.ReadFile("described/" + e.Name())
		if err != nil {
			panic(fmt.Sprintf("decoders: %v", err))
		}
		n, err := mapping(text)
		if err != nil {
			panic(fmt.Sprintf("decoders: %s: %v", e.Name(), err))
		}
		nodes[strings.TrimSuffix(e.Name(), ".yaml")] = n
	}
	for _, name := range source.SortedKeys(nodes) {
		d, err := describe(nodes[name], nodes)
		if err != nil || d.ModelType != name {
			panic(fmt.Sprintf("decoders: %s.yaml describes %q: %v", name, d.ModelType, err))
		}
		family.Register(d.family())
	}
}

// mapping reads the text of a description.
func mapping(text []byte) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, &configs.Undescribed{Why: "is no YAML: " + err.Error()}
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, &configs.Undescribed{Why: "is no mapping of keys: want model_type, config, layers and names"}
	}
	return doc.Content[0], nil
}

// describe decodes a description, laid over that which it is like.
func describe(n *yaml.Node, others map[string]*yaml.Node) (d Description, err error) {
	if err := known(n, reflect.TypeFor[Description](), ""); err != nil {
		return d, err
	}
	for seen := map[string]bool{}; ; {
		like := value(n, "like")
		if like == nil || like.Value == "" {
			break
		}
		base := others[like.Value]
		if base == nil || seen[like.Value] {
			return d, &configs.Undescribed{Line: like.Line, Why: fmt.Sprintf("like: %s is no other described family: %s",
				source.Quoted(like.Value), source.OneOf(source.SortedKeys(others)))}
		}
		seen[like.Value] = true
		name := value(n, "model_type")
		n = laid(without(base, "loong"), n) // its classes mean that family alone
		if value(base, "like") == nil {
			n = without(n, "like")
		} else {
			set(n, "like", value(base, "like"))
		}
		if name != nil {
			set(n, "model_type", name)
		}
	}
	n = copied(n) // others begin with it too
	if config := value(n, "config"); config != nil {
		for _, key := range []string{"fixed", "usual", "defaults", "only"} {
			if err := jsonTexts(value(config, key)); err != nil {
				return d, err
			}
		}
	}
	err = n.Decode(&d)
	return d, err
}

// copied is a node of its own.
func copied(n *yaml.Node) *yaml.Node {
	out := *n
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		out.Content[i] = copied(c)
	}
	return &out
}

// value is that of a key of a mapping, nil if it has none.
func value(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// without is a mapping without a key.
func without(n *yaml.Node, key string) *yaml.Node {
	out := *n
	out.Content = nil
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != key {
			out.Content = append(out.Content, n.Content[i], n.Content[i+1])
		}
	}
	return &out
}

// set sets a key of a mapping.
func set(n *yaml.Node, key string, v *yaml.Node) {
	*n = *without(n, key)
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, v)
}

// laid is what one node says, and where it says nothing another below it.
func laid(below, above *yaml.Node) *yaml.Node {
	switch {
	case below.Kind != above.Kind:
	case above.Kind == yaml.MappingNode:
		out := *below
		out.Content = slices.Clone(below.Content)
		for i := 0; i+1 < len(above.Content); i += 2 {
			key, v := above.Content[i], above.Content[i+1]
			if under := value(below, key.Value); under != nil {
				v = laid(under, v)
			}
			out = *without(&out, key.Value)
			out.Content = append(out.Content, key, v)
		}
		return &out
	case above.Kind == yaml.SequenceNode && len(above.Content) > 0 && above.Content[0].Value == "...":
		out := *above
		out.Content = slices.Concat(below.Content, above.Content[1:])
		return &out
	}
	return above
}

// jsonTexts turns the values of a mapping into JSON, as tables of hf have them. Numbers stay as they are written.
func jsonTexts(n *yaml.Node) error {
	if n == nil {
		return nil
	}
	for i := 1; i < len(n.Content); i += 2 {
		v, text := n.Content[i], n.Content[i].Value
		if v.Kind != yaml.ScalarNode || v.ShortTag() == "!!str" {
			if v.Style&yaml.SingleQuotedStyle == 0 || !json.Valid([]byte(text)) {
				var of any
				if err := v.Decode(&of); err != nil {
					return err
				}
				text = family.JSONOf(of)
			}
		}
		n.Content[i] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: v.Line}
	}
	return nil
}

// known reports a key that a type has no field for, with its line.
func known(n *yaml.Node, t reflect.Type, at string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		for _, e := range n.Content {
			if err := known(e, t.Elem(), at); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Struct && n.Kind == yaml.MappingNode && !reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]()):
		fields := map[string]reflect.Type{}
		for i := range t.NumField() {
			if name := t.Field(i).Tag.Get("yaml"); name != "" && name != "-" {
				fields[name] = t.Field(i).Type
			}
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			of, ok := fields[key.Value]
			if !ok {
				return &configs.Undescribed{Line: key.Line, Why: fmt.Sprintf("%s is no key of a description: %s",
					source.Quoted(at+key.Value), source.OneOf(slices.Sorted(maps.Keys(fields))))}
			}
			if err := known(n.Content[i+1], of, at+key.Value+"."); err != nil {
				return err
			}
		}
	}
	return nil
}

// family is the family that is described.
func (d Description) family() family.Family {
	d.Layers.file = d.Config
	f := family.Family{ModelType: d.ModelType, Paper: d.Paper, HF: d.Config, Spec: d.Layers.spec,
		Source: d.Names.source(), Other: d.Other.source()}
	for _, l := range d.Loong {
		c := loong.Decoder{Class: l.Class, Convert: l.Convert, Mixed: l.Mixed, Alone: l.Alone, Preset: l.Preset}
		if l.Tokens != "" {
			c.Tokens = QwenTokens
		}
		f.Loong = append(f.Loong, c)
	}
	for _, r := range d.Rules {
		rules[r.name](&f, r.n)
	}
	return f
}
