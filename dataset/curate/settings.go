package curate

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/configs/source"
)

// Reader reads settings from YAML, and collects what is wrong with them: each fault has its place.
type Reader struct {
	File   string
	Faults []error
}

// Fail notes what is wrong with a key at a line.
func (r *Reader) Fail(line int, key, why, try string) {
	r.Faults = append(r.Faults, &source.Error{File: r.File, Line: line, Key: key, Why: why, Try: try})
}

// Err returns all faults, nil for none.
func (r *Reader) Err() error { return errors.Join(r.Faults...) }

// Into fills the struct that into points to from a mapping. Keys are those of the yaml tags, and those of
// skip are somebody else's. Key is the place of the mapping, "" for the file.
func (r *Reader) Into(n *yaml.Node, key string, into any, skip ...string) {
	v := reflect.ValueOf(into).Elem()
	if n.Kind != yaml.MappingNode {
		r.Fail(n.Line, key, source.NodeKind(n)+" stands where keys with values are wanted", "")
		return
	}
	fields := map[string]reflect.Value{}
	for _, f := range tagged(v) {
		fields[f.tag] = f.value
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if slices.Contains(skip, name) {
			continue
		}
		f, ok := fields[name]
		if !ok {
			known := append(source.SortedKeys(fields), skip...)
			r.Fail(n.Content[i].Line, dotted(key, name), "there is no such key", source.Nearest(name, known))
			continue
		}
		r.value(n.Content[i+1], dotted(key, name), f)
	}
}

// dotted joins a place and a name.
func dotted(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// value fills one value. Nothing ("null") is zero, which switches rules off.
func (r *Reader) value(n *yaml.Node, key string, v reflect.Value) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		v.SetZero()
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		r.Into(n, key, v.Addr().Interface())
		return
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			r.Fail(n.Line, key, source.NodeKind(n)+" stands where a list is wanted", "write it as [ … ]")
			return
		}
		list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, c := range n.Content {
			r.value(c, fmt.Sprintf("%s[%d]", key, i), list.Index(i))
		}
		v.Set(list)
		return
	}
	if err := n.Decode(v.Addr().Interface()); err != nil {
		r.Fail(n.Line, key, fmt.Sprintf("%s is no %s", source.Quoted(n.Value), kindName(v)), "")
	}
}

// kindName names what a value is to be.
func kindName(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		return "whole number"
	case reflect.Float64:
		return "number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Map:
		return "mapping of names to numbers"
	case reflect.Slice:
		return "list"
	}
	return v.Type().String()
}

// Kind reads which kind of step an entry of a list of steps is: a name alone, or a mapping with a key
// "step". The mapping has its settings; it is nil where something is wrong, which the reader has noted.
func (r *Reader) Kind(n *yaml.Node, key string) (Kind, *yaml.Node) {
	name := n.Value
	if n.Kind == yaml.ScalarNode {
		n = &yaml.Node{Kind: yaml.MappingNode, Line: n.Line}
	} else if v := source.Lookup(n, "step"); v != nil {
		name = v.Value
	}
	k, ok := Find(name)
	switch {
	case name == "":
		r.Fail(n.Line, key+".step", "is not given", source.OneOf(Names()))
	case !ok:
		r.Fail(n.Line, key+".step", fmt.Sprintf("there is no step %q", name), source.Nearest(name, Names()))
	default:
		return k, n
	}
	return Kind{}, nil
}

// Open fills the settings of a step from a mapping, whose keys skip are somebody else's, and opens it. It
// returns nil where something is wrong, which the reader has noted.
func (r *Reader) Open(k Kind, n *yaml.Node, key string, skip ...string) Step {
	faults := len(r.Faults)
	s := k.Settings()
	r.Into(n, key, s, skip...)
	if len(r.Faults) > faults {
		return nil
	}
	step, err := s.Open()
	if err == nil {
		return step
	}
	var f *Fault
	if !errors.As(err, &f) {
		f = &Fault{Why: err.Error()}
	}
	line := n.Line
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == strings.Split(f.Key, ".")[0] {
			line = n.Content[i].Line
		}
	}
	r.Fail(line, dotted(key, f.Key), f.Why, f.Try)
	return nil
}

// Defaults lists the settings of a kind of step as a recipe would have them, in the order of their rules.
func Defaults(k Kind) (out []string) {
	for _, f := range tagged(reflect.ValueOf(k.Settings()).Elem()) {
		if b, err := json.Marshal(f.value.Interface()); err == nil && !f.value.IsZero() {
			out = append(out, f.tag+": "+string(b))
		} else {
			out = append(out, f.tag+": "+kindName(f.value))
		}
	}
	return out
}

// field is a setting.
type field struct {
	tag   string
	value reflect.Value
}

// tagged lists the settings of a struct, those of structs in it among them.
func tagged(v reflect.Value) (out []field) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if tag := f.Tag.Get("yaml"); tag != "" {
			out = append(out, field{tag, v.Field(i)})
		} else if f.Anonymous {
			out = append(out, tagged(v.Field(i))...)
		}
	}
	return out
}
