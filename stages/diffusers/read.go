package diffusers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"

	"github.com/lfactor/lfactor/configs/source"
)

// fileMax bounds what is read as settings: trained_betas of a thousand numbers are 20 KiB.
const fileMax = 1 << 20

// Version is what Marshal writes as "_diffusers_version".
const Version = "0.42.1"

// Keys of a file's own.
const (
	classKey   = "_class_name"
	versionKey = "_diffusers_version"
)

// private are all of them; diffusers notes where a model came from.
var private = []string{classKey, versionKey, "_name_or_path"}

// ReadFile reads a text of at most as many bytes as settings have; what is what errors call its contents.
func ReadFile(path, what string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer file.Close() //nolint:errcheck // it was read only
	text, err := io.ReadAll(io.LimitReader(file, fileMax+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

// Object splits the text of a file into its keys, and notes the line of each. A text that is no JSON object
// is a fault, whose remedy is try, and gives nil.
func (f *Faults) Object(text []byte, try string) map[string]json.RawMessage {
	if len(text) > fileMax {
		f.Add("", try, "more than %d bytes", fileMax)
		return nil
	}
	text = infinities(text)
	d := json.NewDecoder(bytes.NewReader(text))
	broken := func(err error) map[string]json.RawMessage {
		at := min(int(d.InputOffset()), len(text))
		f.line[""] = 1 + bytes.Count(text[:at], []byte("\n"))
		f.Add("", try, "no JSON object: %v", err)
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
		key, line := t.(string), 1+bytes.Count(text[:d.InputOffset()], []byte("\n"))
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return broken(err)
		}
		if f.line[key] > 0 {
			f.line[key] = line
			f.Add(key, "leave one", "the key is given twice")
		}
		f.line[key], raw[key] = line, v
	}
	if _, err := d.Token(); err != nil {
		return broken(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return broken(fmt.Errorf("more text behind the object"))
	}
	return raw
}

// Class is the class that a file says it is of, which is one of those known; what is what such a class is
// called. Another one is a fault and gives "".
func (f *Faults) Class(raw map[string]json.RawMessage, what string, known []string) string {
	var class string
	if err := json.Unmarshal(raw[classKey], &class); err != nil || class == "" {
		f.Add(classKey, "set "+source.OneOf(known), "the file does not say which %s it is of", what)
		return ""
	}
	if !slices.Contains(known, class) {
		f.OneOf(classKey, class, known...)
		return ""
	}
	return class
}

// infinities puts quotes around the numbers that Python writes and JSON does not have.
func infinities(text []byte) []byte {
	var out bytes.Buffer
	quoted, escaped := false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted:
			quoted = escaped || c != '"'
			escaped = !escaped && c == '\\'
		case c == '"':
			quoted = true
		default:
			if word := pythonNumber(text[i:]); word != "" {
				out.WriteString(`"` + word + `"`)
				i += len(word) - 1
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.Bytes()
}

func pythonNumber(text []byte) string {
	for _, w := range []string{"-Infinity", "Infinity", "NaN"} {
		if bytes.HasPrefix(text, []byte(w)) {
			return w
		}
	}
	return ""
}

// Fill sets the fields of the struct that to points at to the values of their keys. A key that is neither
// its own nor among known is a fault, of which nobody says who does not have it; one of known is passed
// over, as diffusers does with keys of other classes.
func (f *Faults) Fill(to any, raw map[string]json.RawMessage, known []string, nobody string) {
	fields := map[string]reflect.Value{}
	for _, k := range Fields(to) {
		fields[k.Name] = k.Value
	}
	all := append(Keys(to), known...)
	for _, key := range source.SortedKeys(raw) {
		field, own := fields[key]
		switch {
		case own:
			f.Set(key, field, raw[key])
		case !slices.Contains(private, key) && !slices.Contains(known, key):
			f.Add(key, source.DidYouMean(key, all), "%s has this key", nobody)
		}
	}
}

// Keys lists the keys of the struct that of points at, as they stand in it.
func Keys(of any) (names []string) {
	for _, k := range Fields(of) {
		names = append(names, k.Name)
	}
	return names
}

// Field is a field of a struct under its key.
type Field struct {
	Name  string
	Value reflect.Value
}

// Fields lists the keys of a struct, those of embedded structs among them.
func Fields(of any) []Field { return structKeys(reflect.ValueOf(of).Elem()) }

func structKeys(v reflect.Value) (keys []Field) {
	for i := range v.NumField() {
		if t := v.Type().Field(i); t.Anonymous {
			keys = append(keys, structKeys(v.Field(i))...)
		} else if name := t.Tag.Get("json"); name != "" {
			keys = append(keys, Field{name, v.Field(i)})
		}
	}
	return keys
}

// wants says in words which values a field takes.
func wants(t reflect.Type) string {
	if t == reflect.TypeFor[Size]() {
		return "an integer or a list of integers"
	}
	one := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.Int: "an integer",
		reflect.Float64: "a number", reflect.String: "a string"}
	many := map[reflect.Kind]string{reflect.Bool: "true and false", reflect.Int: "integers",
		reflect.Float64: "numbers", reflect.String: "strings", reflect.Slice: "lists"}
	switch t.Kind() {
	case reflect.Slice:
		return "a list of " + many[t.Elem().Kind()] + " or null"
	case reflect.Pointer:
		return one[t.Elem().Kind()] + " or null"
	}
	return one[t.Kind()]
}

// Set decodes one value. null is a value of slices and pointers alone.
func (f *Faults) Set(key string, to reflect.Value, raw json.RawMessage) {
	null := string(raw) == "null"
	if null && to.Kind() != reflect.Slice && to.Kind() != reflect.Pointer {
		f.Add(key, "", "null where %s belongs", wants(to.Type()))
		return
	}
	if v, is := infinite(raw); is && to.Kind() == reflect.Float64 {
		to.SetFloat(v)
		return
	}
	fresh := reflect.New(to.Type())
	if err := json.Unmarshal(raw, fresh.Interface()); err != nil {
		f.Add(key, "", "%s where %s belongs", source.Quoted(string(raw)), wants(to.Type()))
		return
	}
	to.Set(fresh.Elem())
}

// infinite reads a number that infinities has quoted.
func infinite(raw json.RawMessage) (float64, bool) {
	switch string(raw) {
	case `"-Infinity"`:
		return math.Inf(-1), true
	case `"Infinity"`:
		return math.Inf(1), true
	}
	return 0, false
}
