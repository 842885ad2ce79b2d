package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

// Raw is a mapping of a config.json by its keys.
type Raw = map[string]json.RawMessage

// Own are keys of a family's config.json that are no settings themselves, but that settings follow from.
type Own struct {
	keys []string
	read func(d *Decoder, raw Raw)
}

// Keys declares such keys: T is a struct whose fields have a tag key and perhaps min, max and oneof, and
// whole has the values that hold where the file has none, or null. A value of another type, or out of its
// range, is a fault; then enter is not called. A field that is a pointer is nil for null. T may have settings
// among its fields: they are read here too, and their faults are reported where they are entered.
func Keys[T any](whole T, enter func(k T, d *Decoder)) Own {
	typ := reflect.TypeFor[T]()
	o := Own{}
	for i := range typ.NumField() {
		key := typ.Field(i).Tag.Get("key")
		if key == "" {
			panic(fmt.Sprintf("hf: %v.%s has no tag key", typ, typ.Field(i).Name))
		}
		o.keys = append(o.keys, key)
	}
	o.read = func(d *Decoder, raw Raw) {
		v := whole
		if d.fields(raw, "", reflect.ValueOf(&v).Elem()) {
			enter(v, d)
		}
	}
	return o
}

// Typed reads keys that are no settings from a mapping of a composed model's file, into a struct as that of
// Keys: section is "vision_config", or "" for the top level. A value of another type, or out of its range, is
// a fault; then ok is false.
func Typed[T any](d *Decoder, raw Raw, section string, whole T) (k T, ok bool) {
	if section != "" {
		section += "."
	}
	ok = d.fields(raw, section, reflect.ValueOf(&whole).Elem())
	return whole, ok
}

// fields decodes keys into the fields of a struct and reports whether all could be; section stands before the
// keys in faults.
func (d *Decoder) fields(raw Raw, section string, v reflect.Value) bool {
	ok := true
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key := f.Tag.Get("key")
		text := d.raw(raw, key)
		if text == nil || string(text) == "null" && f.Type.Kind() != reflect.Pointer {
			continue
		}
		dst := reflect.New(f.Type)
		why := ""
		if json.Unmarshal(text, dst.Interface()) != nil {
			why = fmt.Sprintf("%s, want %s", Compact(text), kindName(f.Type))
		} else {
			why = outside(dst.Elem(), f.Tag)
		}
		if why != "" {
			ok = false
			if section != "" || !d.setting(key) { // whose fault is reported where it is entered
				d.Fail(section+key, why, "")
			}
			continue
		}
		v.Field(i).Set(dst.Elem())
	}
	return ok
}

// raw is the value of a key, or of its other name in the family.
func (d *Decoder) raw(raw Raw, key string) json.RawMessage {
	if text, ok := raw[key]; ok {
		return text
	}
	for other, ours := range d.f.Alias {
		if ours == key && raw[other] != nil {
			return raw[other]
		}
	}
	return nil
}

// setting reports whether the family's files give a setting by a key, or more than one.
func (d *Decoder) setting(key string) bool {
	return key == "rope_parameters" || !slices.Contains(d.f.Idle, key) && d.Sink.Has(source.ModelKeys+"."+key)
}

// outside says how a value breaks its tags.
func outside(v reflect.Value, tag reflect.StructTag) string {
	var x float64
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
		return outside(v.Elem(), tag)
	case reflect.Int:
		x = float64(v.Int())
	case reflect.Float64:
		x = v.Float()
	case reflect.String:
		words := strings.Split(tag.Get("oneof"), "|")
		if tag.Get("oneof") != "" && !slices.Contains(words, v.String()) {
			return source.Quoted(v.String()) + " is not known, want " + source.OneOf(words)
		}
		return ""
	default:
		return ""
	}
	for name, beyond := range map[string]func(bound float64) bool{
		"min": func(b float64) bool { return x < b }, "max": func(b float64) bool { return x > b }} {
		text, given := tag.Lookup(name)
		bound, err := strconv.ParseFloat(text, 64)
		if given && err == nil && beyond(bound) {
			return fmt.Sprintf("%v, want at %s %s", v.Interface(), map[string]string{"min": "least",
				"max": "most"}[name], text)
		}
	}
	return ""
}

// kindName names a type for messages.
func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int:
		return "an integer"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a word"
	case reflect.Pointer:
		return kindName(t.Elem())
	case reflect.Slice:
		return "a list, each of whose entries is " + kindName(t.Elem())
	}
	return "an object"
}

// Fail reports what is wrong with a key of the file, at its line. In the decoder's part of a composed model's
// file a key may be named without text_config.
func (d *Decoder) Fail(key, why, try string) {
	o := d.O
	o.Line = d.line(key)
	d.Sink.Fail(o, key, why, try)
}

// line is that of a key, 0 where the file does not have it.
func (d *Decoder) line(key string) int {
	for _, name := range []string{d.inside + key, key} {
		if n := d.lines[name]; n > 0 {
			return n
		}
	}
	for other, ours := range d.f.Alias {
		if n := max(d.lines[other], d.lines[d.inside+other]); ours == key && n > 0 {
			return n
		}
	}
	if before, _, ok := strings.Cut(key, "."); ok {
		return d.line(before)
	}
	return 0
}

// lines are the lines of a JSON object's keys, those of objects in it as outer.inner.
func lines(text []byte) map[string]int {
	out, dec := map[string]int{}, json.NewDecoder(bytes.NewReader(text))
	line, seen := 1, 0
	here := func() int {
		line += bytes.Count(text[seen:dec.InputOffset()], []byte("\n"))
		seen = int(dec.InputOffset())
		return line
	}
	walkKeys(dec, "", func(path string) { out[path] = here() })
	return out
}

// walkKeys calls found after each key of the value that comes next. It ends where the text is no JSON.
func walkKeys(dec *json.Decoder, path string, found func(path string)) bool {
	t, err := dec.Token()
	if err != nil {
		return err == io.EOF
	}
	open, nested := t.(json.Delim)
	if !nested {
		return true
	}
	for dec.More() {
		at := path
		if open == '{' {
			key, err := dec.Token()
			if err != nil {
				return false
			}
			at = strings.TrimPrefix(path+"."+fmt.Sprint(key), ".")
			found(at)
		}
		if !walkKeys(dec, at, found) {
			return false
		}
	}
	_, err = dec.Token()
	return err == nil
}
