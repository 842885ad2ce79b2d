package texts

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/stages/diffusers"
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
	f := &faults{diffusers.New(file)}
	raw := f.Object(text, "give the config.json of a text encoder's folder")
	if f.Any() {
		return nil, f.Err()
	}
	class, ok := f.class(raw)
	if !ok {
		return nil, f.Err()
	}
	c := class.fresh()
	notes, kept := f.fill(class, c, raw)
	if !f.Any() {
		c.check(f)
	}
	if f.Any() {
		return nil, f.Err()
	}
	m := c.model()
	m.Class, m.Notes, m.config, m.kept = class.Name, notes, c, kept
	return m, nil
}

// class is the one that the file is of.
func (f *faults) class(raw map[string]json.RawMessage) (Class, bool) {
	var names []string
	if err := json.Unmarshal(raw["architectures"], &names); err != nil || len(names) != 1 {
		f.Add("architectures", "set a list of "+source.OneOf(classNames()),
			"the file does not say which class it is of")
		return Class{}, false
	}
	if !f.OneOf("architectures", names[0], classNames()...) {
		return Class{}, false
	}
	class := classes[names[0]]
	types := append([]string{class.Type}, class.Types...)
	var typ string
	if text, given := raw["model_type"]; given {
		if json.Unmarshal(text, &typ) != nil || !slices.Contains(types, typ) {
			f.Add("model_type", source.OneOf(types), "%s is not that of %s", string(text), class.Name)
		}
	}
	return class, true
}

// fill sets the fields of a configuration to the values of their keys, and keeps those that are idle. Keys
// of dropout, which states of captions are encoded without, give notes where they are not 0.
func (f *faults) fill(class Class, c config, raw map[string]json.RawMessage) (notes []string,
	kept map[string]json.RawMessage) {
	fields := map[string]reflect.Value{}
	for _, k := range diffusers.Fields(c) {
		fields[k.Name] = k.Value
	}
	kept = map[string]json.RawMessage{}
	known := append(source.SortedKeys(fields), written...)
	for _, key := range source.SortedKeys(raw) {
		to, own := fields[key]
		switch {
		case own:
			f.Set(key, to, raw[key])
		case slices.Contains(idle, key), slices.Contains(class.Idle, key):
			kept[key] = raw[key]
			if text := string(raw[key]); strings.Contains(key, "dropout") && !source.SameValue(text, "0") {
				notes = append(notes, fmt.Sprintf("%s: %s: %s is not used: captions are encoded "+
					"without dropout", f.At(key), key, text))
			}
		case !slices.Contains(known, key):
			f.Add(key, source.DidYouMean(key, known), "%s has no such key", class.Name)
		}
	}
	return notes, kept
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
	for _, k := range diffusers.Fields(m.config) {
		if k.Value.Kind() != reflect.Pointer || !k.Value.IsNil() {
			all[k.Name] = k.Value.Interface()
		}
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		panic("texts: a key of a type that JSON does not have: " + err.Error())
	}
	return append(text, '\n')
}
