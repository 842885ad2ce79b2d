package configs

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
	"go.yaml.in/yaml/v3"
)

// Find returns a key by its name, by its last word if only one key has it, or only one with so few words
// before it, or by a flag; the error names the nearest.
func Find(name string) (Key, error) {
	t := table()
	if k := t.byName[name]; k != nil {
		return *k, nil
	}
	if k := t.byFlag[strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-")]; k != nil {
		return *k, nil
	}
	var found []string
	for _, k := range t.keys {
		depth := func(s string) int { return strings.Count(s, ".") }
		switch {
		case !strings.HasSuffix(k.Name, "."+name) || len(found) > 0 && depth(k.Name) > depth(found[0]):
		case len(found) > 0 && depth(k.Name) < depth(found[0]):
			found = []string{k.Name}
		default:
			found = append(found, k.Name)
		}
	}
	switch len(found) {
	case 1:
		return *t.byName[found[0]], nil
	case 0:
		return Key{}, &Error{File: "command line", Key: name, Why: "unknown key",
			Try: source.DidYouMean(name, source.SortedKeys(t.byName))}
	}
	return Key{}, &Error{File: "command line", Key: name, Why: "more than one key has this name",
		Try: source.OneOf(found)}
}

// Section lists the keys of a section and of those below it; none if there is no such section.
func Section(name string) (out []Key) {
	if name == "" || !table().sections[name] {
		return nil
	}
	for _, k := range table().keys {
		if strings.HasPrefix(k.Name, name+".") {
			out = append(out, *k)
		}
	}
	return out
}

// Explain describes a key in a few lines.
func (k Key) Explain() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %s\n  %s\n", k.Name, k.Type, k.Doc)
	if k.Unit != "" {
		fmt.Fprintf(&s, "  unit: %s\n", k.Unit)
	}
	if len(k.OneOf) > 0 {
		fmt.Fprintf(&s, "  %s\n", source.OneOf(k.OneOf))
	}
	if k.Default != "" {
		fmt.Fprintf(&s, "  default: %s\n", k.Default)
	}
	if k.Min != nil {
		fmt.Fprintf(&s, "  at least %s\n", trim(*k.Min))
	}
	if k.Max != nil {
		fmt.Fprintf(&s, "  at most %s\n", trim(*k.Max))
	}
	fmt.Fprintf(&s, "  on resume: %s\n", map[Class]string{Free: "free to change",
		Replan: "may change; the plan is made anew", Fixed: "fixed; another value is another run"}[k.Class])
	for _, f := range k.Flags {
		if f.Value != "" {
			fmt.Fprintf(&s, "  Megatron: --%s means %s\n", f.Name, f.Value)
		} else {
			fmt.Fprintf(&s, "  Megatron: --%s\n", f.Name)
		}
	}
	return s.String()
}

// Explain describes a key with its value here, where that was set, and what it won over.
func (c *Config) Explain(k Key) string {
	value, _ := c.Value(k.Name)
	value = Redact(value)
	var s strings.Builder
	fmt.Fprintf(&s, "%s = %s\n  set by: %s\n", k.Name, value, c.Origin(k.Name))
	given := c.given[k.Name]
	for i := len(given) - 2; i >= 0; i-- {
		l := &loader{}
		fmt.Fprintf(&s, "  over: %s from %s\n", l.text(table().byName[k.Name], given[i]), given[i].origin)
	}
	s.WriteString(k.Explain())
	return s.String()
}

// Schema returns a JSON Schema (draft 2020-12) of run files.
func Schema() []byte {
	root := schemaObject()
	for _, k := range table().keys {
		at := root
		parts := strings.Split(k.Name, ".")
		for _, section := range parts[:len(parts)-1] {
			props := at["properties"].(map[string]any)
			if props[section] == nil {
				props[section] = schemaObject()
			}
			at = props[section].(map[string]any)
		}
		at["properties"].(map[string]any)[parts[len(parts)-1]] = k.schema()
	}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "lfactor run file"
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("configs: the schema cannot be JSON: %v", err))
	}
	return append(text, '\n')
}

func schemaObject() map[string]any {
	return map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}}
}

// schema describes a key as JSON Schema, by which editors check and complete run files.
func (k Key) schema() map[string]any {
	s := schemaType(k.Type)
	s["description"] = k.Doc
	k.alternatives(s)
	if k.Min != nil && k.Type != "bytes" {
		s["minimum"] = *k.Min
	}
	if k.Max != nil && k.Type != "bytes" {
		s["maximum"] = *k.Max
	}
	if k.Default != "" {
		node, err := source.ParseValue(k.Default)
		var v any
		if err == nil {
			err = node.Decode(&v)
		}
		if err != nil {
			panic(fmt.Sprintf("configs: %s: default %s: %v", k.Name, k.Default, err))
		}
		s["default"] = v
	}
	return s
}

// schemaType is the type of a key in JSON Schema; a list may also be given as a single value.
func schemaType(typ string) map[string]any {
	if item, ok := strings.CutPrefix(typ, "list of "); ok {
		one := schemaType(item)
		return map[string]any{"anyOf": []any{one, map[string]any{"type": "array", "items": one}}}
	}
	switch typ {
	case "bytes":
		return map[string]any{"type": []string{"integer", "string"}}
	case "mapping":
		return map[string]any{"type": []string{"object", "null"}}
	case pathType:
		entry := schemaObject()
		entry["properties"] = map[string]any{"path": map[string]any{"type": "string"},
			"weight": map[string]any{"type": []string{"number", "object"}}, "name": map[string]any{"type": "string"},
			"linear": map[string]any{"type": "boolean"}}
		return map[string]any{"anyOf": []any{map[string]any{"type": "string"}, entry}}
	}
	return map[string]any{"type": typ}
}

// Change is a setting that differs between two configurations.
type Change struct {
	Key   string `json:"key"`
	A     string `json:"a"` // as YAML; "" if the configuration does not have the key
	B     string `json:"b"`
	Class Class  `json:"on_resume"`
}

// Diff compares two configurations in the form of Flat, in the order of the keys.
func Diff(a, b map[string]string) []Change {
	var out []Change
	for _, k := range table().keys {
		if a[k.Name] != b[k.Name] {
			out = append(out, Change{k.Name, a[k.Name], b[k.Name], k.Class})
		}
	}
	for _, name := range source.SortedKeys(a) { // of another version
		if table().byName[name] == nil {
			out = append(out, Change{name, a[name], "", Free})
		}
	}
	return out
}

// Resume compares the configuration with that of the checkpoint to go on from. Every changed fixed setting
// is a fault; the other changes are returned.
func (c *Config) Resume(saved map[string]string) ([]Change, error) {
	var errs []error
	redacted := map[string]string{} // older ones were saved as they stood
	for k, v := range saved {
		redacted[k] = Redact(v)
	}
	saved = redacted
	changes := slices.DeleteFunc(Diff(saved, c.Flat()), func(ch Change) bool {
		fixed := ch.Class == Fixed || c.Run.Train.AnyPlan() && slices.Contains(CutsMicrobatch, ch.Key)
		if !fixed || !present(saved, ch.Key) {
			return !present(saved, ch.Key)
		}
		errs = append(errs, c.Fault(ch.Key, fmt.Sprintf("is %s, the checkpoint was made with %s", ch.B, ch.A),
			"set it back, or start a new run in another checkpoint.dir"))
		return true
	})
	return changes, errors.Join(errs...)
}

// CutsMicrobatch are the keys of a plan that decide how the sums within a microbatch are taken, and with them bits: they
// belong to a run whose bits no plan is to change (train.reproducible).
var CutsMicrobatch = []string{"train.micro_batch", "plan.tp", "plan.sequence_parallel", "plan.cp", "plan.cp_comm",
	"plan.cp_layout", "plan.ulysses", "plan.ep", "plan.etp", "plan.redundant_experts", "plan.chunk_size",
	"plan.encoder.tp"}

func present(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

// YAML writes the configuration as a run file with every setting that is not a default, for a record that
// can be run again.
func (c *Config) YAML() []byte {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range table().keys {
		if len(c.given[k.Name]) == 0 {
			continue
		}
		if k.model && c.Origin(k.Name).Layer == source.LayerModel {
			continue // the model's file says so
		}
		value, _ := c.Value(k.Name)
		node, err := source.ParseValue(Redact(value))
		if err != nil {
			panic(fmt.Sprintf("configs: %s: %s: %v", k.Name, Redact(value), err))
		}
		place(root, strings.Split(k.Name, "."), node)
	}
	text, err := yaml.Marshal(root)
	if err != nil {
		panic(fmt.Sprintf("configs: a run file cannot be YAML: %v", err))
	}
	return text
}

// place puts a value at a path of nested mappings.
func place(n *yaml.Node, path []string, value *yaml.Node) {
	if len(path) == 1 {
		n.Content = append(n.Content, source.ScalarNode(path[0]), value)
		return
	}
	child := source.Lookup(n, path[0])
	if child == nil {
		child = &yaml.Node{Kind: yaml.MappingNode}
		n.Content = append(n.Content, source.ScalarNode(path[0]), child)
	}
	place(child, path[1:], value)
}
