package texts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

// transformersVersion is what config.json says that it was written by.
const transformersVersion = "5.24.0"

// idle are keys of every class that transformers writes and that say nothing about what an encoder computes;
// written are those that Config writes anew.
var (
	idle = []string{"_name_or_path", "use_cache", "pad_token_id", "bos_token_id", "initializer_factor",
		"initializer_range", "gradient_checkpointing", "_attn_implementation_autoset", "output_attentions",
		"output_hidden_states", "return_dict"}
	written = []string{"architectures", "model_type", "transformers_version", "dtype", "torch_dtype"}
)

// ReadFile reads a config.json. Errors are *source.Error, joined: of a key that no class has, one given
// twice, a value of another type or out of range, and keys that contradict each other.
func ReadFile(path string) (*Model, error) {
	text, err := source.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Read(path, text)
}

// Read is ReadFile of text; file is what errors call it. Keys that it does not have get transformers' defaults.
func Read(file string, text []byte) (*Model, error) {
	f := &faults{file: file, line: map[string]int{}}
	raw := f.object(text)
	if f.list != nil {
		return nil, f.err()
	}
	class, ok := f.class(raw)
	if !ok {
		return nil, f.err()
	}
	c := class.fresh()
	notes, kept := f.fill(class, c, raw)
	if f.list == nil {
		c.check(f)
	}
	if f.list != nil {
		return nil, f.err()
	}
	m := c.model()
	m.Class, m.Notes, m.config, m.kept = class.Name, notes, c, kept
	return m, nil
}

// class is the one that the file is of.
func (f *faults) class(raw map[string]json.RawMessage) (Class, bool) {
	var names []string
	if err := json.Unmarshal(raw["architectures"], &names); err != nil || len(names) != 1 {
		f.add("architectures", "set a list of "+source.OneOf(classNames()),
			"the file does not say which class it is of")
		return Class{}, false
	}
	if !f.oneOf("architectures", names[0], classNames()) {
		return Class{}, false
	}
	class := classes[names[0]]
	types := append([]string{class.Type}, class.Types...)
	var typ string
	if text, given := raw["model_type"]; given {
		if json.Unmarshal(text, &typ) != nil || !slices.Contains(types, typ) {
			f.add("model_type", source.OneOf(types), "%s is not that of %s", string(text), class.Name)
		}
	}
	return class, true
}

// object splits the text into its keys, and notes the line of each.
func (f *faults) object(text []byte) map[string]json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(text))
	line := func() int { return 1 + bytes.Count(text[:min(int(d.InputOffset()), len(text))], []byte("\n")) }
	broken := func(err error) map[string]json.RawMessage {
		f.line[""] = line()
		f.add("", "give the config.json of a text encoder's folder", "no JSON object: %v", err)
		return nil
	}
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return broken(fmt.Errorf("it begins with %v", t))
	}
	raw := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return broken(err)
		}
		key, at := t.(string), line()
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return broken(err)
		}
		if f.line[key] > 0 {
			f.line[key] = at
			f.add(key, "leave one", "the key is given twice")
		}
		f.line[key], raw[key] = at, v
	}
	if _, err := d.Token(); err != nil {
		return broken(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return broken(fmt.Errorf("more text behind the object"))
	}
	return raw
}

// fill sets the fields of a configuration to the values of their keys, and keeps those that are idle. Keys
// of dropout, which states of captions are encoded without, give notes where they are not 0.
func (f *faults) fill(class Class, c config, raw map[string]json.RawMessage) (notes []string,
	kept map[string]json.RawMessage) {
	fields := map[string]reflect.Value{}
	for _, k := range keysOf(c) {
		fields[k.name] = k.value
	}
	kept = map[string]json.RawMessage{}
	known := append(source.SortedKeys(fields), written...)
	for _, key := range source.SortedKeys(raw) {
		to, own := fields[key]
		switch {
		case own:
			f.set(key, to, raw[key])
		case slices.Contains(idle, key), slices.Contains(class.Idle, key):
			kept[key] = raw[key]
			if text := string(raw[key]); strings.Contains(key, "dropout") && !source.SameValue(text, "0") {
				notes = append(notes, fmt.Sprintf("%s:%d: %s: %s is not used: captions are encoded "+
					"without dropout", f.file, f.line[key], key, text))
			}
		case !slices.Contains(known, key):
			f.add(key, source.DidYouMean(key, known), "%s has no such key", class.Name)
		}
	}
	return notes, kept
}

// keyed is a field of a configuration under its key.
type keyed struct {
	name  string
	value reflect.Value
}

// keysOf lists the keys of a configuration, those of embedded structs among them.
func keysOf(c config) []keyed { return structKeys(reflect.ValueOf(c).Elem()) }

func structKeys(v reflect.Value) (keys []keyed) {
	for i := range v.NumField() {
		if t := v.Type().Field(i); t.Anonymous {
			keys = append(keys, structKeys(v.Field(i))...)
		} else if name := t.Tag.Get("json"); name != "" {
			keys = append(keys, keyed{name, v.Field(i)})
		}
	}
	return keys
}

// set decodes one value; null is a value of pointers alone.
func (f *faults) set(key string, to reflect.Value, raw json.RawMessage) {
	wants := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.Int: "an integer",
		reflect.Float64: "a number", reflect.String: "a string"}
	kind := to.Kind()
	if kind == reflect.Pointer {
		kind = to.Type().Elem().Kind()
	} else if string(raw) == "null" {
		f.add(key, "", "null where %s belongs", wants[kind])
		return
	}
	fresh := reflect.New(to.Type())
	if err := json.Unmarshal(raw, fresh.Interface()); err != nil {
		f.add(key, "", "%s where %s belongs", source.Quoted(string(raw)), wants[kind])
		return
	}
	to.Set(fresh.Elem())
}

// Config is the model's config.json as transformers writes it: all keys in order, two spaces, those that
// were read and do nothing here among them. Read gives back an equal model. DType is the type of its
// weights in transformers' words, as float32.
func (m *Model) Config(dtype string) []byte {
	all := map[string]any{"architectures": []string{m.Class}, "model_type": classes[m.Class].Type,
		"transformers_version": transformersVersion, "dtype": dtype}
	for key, raw := range m.kept {
		all[key] = raw
	}
	for _, k := range keysOf(m.config) {
		if k.value.Kind() != reflect.Pointer || !k.value.IsNil() {
			all[k.name] = k.value.Interface()
		}
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		panic("texts: a key of a type that JSON does not have: " + err.Error())
	}
	return append(text, '\n')
}
