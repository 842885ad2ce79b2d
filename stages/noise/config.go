package noise

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

// fileMax bounds what is read as a scheduler_config.json: trained_betas of a thousand numbers are 20 KiB.
const fileMax = 1 << 20

// Version is what Marshal writes as "_diffusers_version".
const Version = "0.42.1"

// private are keys of the file's own; foreign ones belong to schedulers that are not registered, and lie in
// published files, since diffusers keeps the keys of a scheduler that it replaces.
var (
	private = []string{"_class_name", "_diffusers_version"}
	foreign = []string{"skip_prk_steps", "noise_sampler_seed", "s_noise"}
)

// ReadFile reads a scheduler_config.json.
func ReadFile(path string) (Scheduler, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("a scheduler's settings: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was read only
	text, err := io.ReadAll(io.LimitReader(file, fileMax+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return Read(path, text)
}

// Read reads the text of a scheduler_config.json; file is what errors call it. Keys that it does not have
// get diffusers' defaults. A key that no scheduler has, one given twice, a value of another type and keys
// that contradict each other are errors, all reported at once. Keys of other schedulers are passed over, as
// diffusers does.
func Read(file string, text []byte) (Scheduler, error) {
	f := &faults{file: file, line: map[string]int{}}
	if len(text) > fileMax {
		f.add("", "give the scheduler_config.json of a diffusers folder", "more than %d bytes", fileMax)
		return nil, f.err()
	}
	raw := f.object(infinities(text))
	if f.list != nil {
		return nil, f.err()
	}
	var class string
	if err := json.Unmarshal(raw["_class_name"], &class); err != nil || class == "" {
		f.add("_class_name", "set "+source.OneOf(Classes()), "the file does not say which scheduler it is of")
		return nil, f.err()
	}
	s := New(class)
	if s == nil {
		f.oneOf("_class_name", class, Classes()...)
		return nil, f.err()
	}
	f.fill(s, raw)
	if f.list == nil {
		s.check(f)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return s, nil
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

// object splits the text into its keys, and notes the line of each.
func (f *faults) object(text []byte) map[string]json.RawMessage {
	const try = "give the scheduler_config.json of a diffusers folder"
	d := json.NewDecoder(bytes.NewReader(text))
	broken := func(err error) map[string]json.RawMessage {
		at := min(int(d.InputOffset()), len(text))
		f.line[""] = 1 + bytes.Count(text[:at], []byte("\n"))
		f.add("", try, "no JSON object: %v", err)
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
			f.add(key, "leave one", "the key is given twice")
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

// fill sets the fields of a scheduler to the values of their keys.
func (f *faults) fill(s Scheduler, raw map[string]json.RawMessage) {
	fields := map[string]reflect.Value{}
	for _, k := range keysOf(s) {
		fields[k.name] = k.value
	}
	for _, key := range source.SortedKeys(raw) {
		to, own := fields[key]
		switch {
		case own:
			f.set(key, to, raw[key])
		case !slices.Contains(private, key) && !slices.Contains(knownKeys(), key):
			f.add(key, source.DidYouMean(key, knownKeys()), "no scheduler has this key")
		}
	}
}

// knownKeys are the keys of all schedulers.
func knownKeys() []string {
	known := slices.Clone(foreign)
	for _, class := range Classes() {
		for _, k := range keysOf(New(class)) {
			known = append(known, k.name)
		}
	}
	slices.Sort(known)
	return slices.Compact(known)
}

// keyed is a field of a scheduler under its key.
type keyed struct {
	name  string
	value reflect.Value
}

// keysOf lists the keys of a scheduler, those of embedded structs among them.
func keysOf(s Scheduler) []keyed { return structKeys(reflect.ValueOf(s).Elem()) }

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

// set decodes one value. null is a value of slices and pointers alone.
func (f *faults) set(key string, to reflect.Value, raw json.RawMessage) {
	wants := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.Int: "an integer",
		reflect.Float64: "a number", reflect.String: "a string", reflect.Slice: "a list of numbers or null",
		reflect.Pointer: "a number or null"}[to.Kind()]
	null := string(raw) == "null"
	if null && to.Kind() != reflect.Slice && to.Kind() != reflect.Pointer {
		f.add(key, "", "null where %s belongs", wants)
		return
	}
	if v, is := infinite(raw); is && to.Kind() == reflect.Float64 {
		to.SetFloat(v)
		return
	}
	fresh := reflect.New(to.Type())
	if err := json.Unmarshal(raw, fresh.Interface()); err != nil {
		f.add(key, "", "%s where %s belongs", source.Quoted(string(raw)), wants)
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

// Marshal writes a scheduler as scheduler_config.json, as diffusers does: all keys in order, two spaces, and
// whole numbers of a float's key with a point. Read gives back an equal one.
func Marshal(s Scheduler) []byte {
	lines := []string{fmt.Sprintf("  %q: %q", private[0], s.Class()),
		fmt.Sprintf("  %q: %q", private[1], Version)}
	keys := keysOf(s)
	slices.SortFunc(keys, func(a, b keyed) int { return strings.Compare(a.name, b.name) })
	for _, k := range keys {
		lines = append(lines, fmt.Sprintf("  %q: %s", k.name, pythonic(k.value, "  ")))
	}
	return []byte("{\n" + strings.Join(lines, ",\n") + "\n}\n")
}

// pythonic is a value as Python's json module writes it with an indent.
func pythonic(v reflect.Value, indent string) string {
	switch v.Kind() {
	case reflect.Float64:
		return pythonFloat(v.Float())
	case reflect.Pointer:
		if v.IsNil() {
			return "null"
		}
		return pythonic(v.Elem(), indent)
	case reflect.Slice:
		return pythonList(v, indent)
	}
	text, err := json.Marshal(v.Interface())
	if err != nil {
		panic("noise: a key of a type that JSON does not have: " + err.Error())
	}
	return string(text)
}

func pythonList(v reflect.Value, indent string) string {
	if v.IsNil() {
		return "null"
	}
	if v.Len() == 0 {
		return "[]"
	}
	parts := make([]string, v.Len())
	for i := range parts {
		parts[i] = indent + "  " + pythonic(v.Index(i), indent+"  ")
	}
	return "[\n" + strings.Join(parts, ",\n") + "\n" + indent + "]"
}

func pythonFloat(x float64) string {
	switch {
	case math.IsInf(x, -1):
		return "-Infinity"
	case math.IsInf(x, 1):
		return "Infinity"
	}
	text, err := json.Marshal(x)
	if err != nil {
		panic("noise: a number that JSON does not have: " + err.Error())
	}
	if !bytes.ContainsAny(text, ".e") {
		return string(text) + ".0"
	}
	return string(text)
}
