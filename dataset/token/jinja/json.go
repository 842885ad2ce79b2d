package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// depthMax bounds the nesting of JSON values, of expressions and of macro calls.
const depthMax = 128

// FromJSON reads one JSON value, keeping the order of keys and the difference between 1 and 1.0.
func FromJSON(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	v, err := readJSON(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("text behind a JSON value at byte %d", d.InputOffset())
	}
	return v, nil
}

// readJSON reads a value, keeping the order of objects, which the standard decoder would lose.
func readJSON(d *json.Decoder, depth int) (any, error) {
	if depth > depthMax {
		return nil, fmt.Errorf("JSON nested over %d deep", depthMax)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch x := t.(type) {
	case json.Number:
		return jsonNumber(x)
	case json.Delim:
		if x == '[' {
			return readArray(d, depth)
		}
		return readObject(d, depth)
	}
	return t, nil
}

func jsonNumber(n json.Number) (any, error) {
	if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return i, nil
	}
	return strconv.ParseFloat(string(n), 64)
}

func readArray(d *json.Decoder, depth int) (any, error) {
	var out []any
	for d.More() {
		v, err := readJSON(d, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	_, err := d.Token()
	return list(out), err
}

func readObject(d *json.Decoder, depth int) (any, error) {
	out := NewMap()
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := readJSON(d, depth+1)
		if err != nil {
			return nil, err
		}
		out.Set(key, v)
	}
	_, err := d.Token()
	return out, err
}

// ToJSON writes a value as compact JSON, keys in their order.
func ToJSON(v any) ([]byte, error) {
	var out strings.Builder
	err := jsonStyle{item: ",", key: ":"}.dump(&out, v, 0)
	return []byte(out.String()), err
}

// PythonJSON writes a value as Python's json.dumps with ensure_ascii=False does, keys in their order: what the
// filter tojson gives templates.
func PythonJSON(v any) (string, error) {
	var out strings.Builder
	err := jsonStyle{item: ", ", key: ": "}.dump(&out, v, 0)
	return out.String(), err
}

// Text is what {{ v }} writes: Python's str.
func Text(v any) string { return str(v) }

// FromGo turns Go values (nil, bool, numbers, string, []any, []string, map[string]any, json.RawMessage) into
// values of the language. Keys of Go maps come in sorted order; values of the language stay as they are.
func FromGo(v any) (any, error) {
	switch x := v.(type) {
	case nil, bool, int64, float64, *List, *Map, Undefined:
		return v, nil
	case string:
		return strings.ToValidUTF8(x, "\uFFFD"), nil
	case int:
		return int64(x), nil
	case json.RawMessage:
		return FromJSON(x)
	case []string:
		var out []any
		for _, s := range x {
			out = append(out, s)
		}
		return list(out), nil
	case []any:
		var out []any
		for _, e := range x {
			item, err := FromGo(e)
			if err != nil {
				return nil, err
			}
			out = append(out, item)
		}
		return list(out), nil
	case map[string]any:
		out := NewMap()
		for _, k := range slices.Sorted(maps.Keys(x)) {
			item, err := FromGo(x[k])
			if err != nil {
				return nil, err
			}
			out.Set(k, item)
		}
		return out, nil
	}
	return nil, fmt.Errorf("a template cannot use a Go %T", v)
}

// jsonStyle is how Python's json.dumps lays a value out.
type jsonStyle struct {
	item, key string // separators
	indent    string // of one level; with it each item stands on its own line
	lines     bool
	sortKeys  bool
	ascii     bool
}

// dump writes v as Python's json.dumps does.
func (s jsonStyle) dump(out *strings.Builder, v any, level int) error {
	switch x := v.(type) {
	case nil:
		out.WriteString("null")
	case bool:
		out.WriteString(strconv.FormatBool(x))
	case int64:
		out.WriteString(strconv.FormatInt(x, 10))
	case float64:
		out.WriteString(jsonFloat(x))
	case string:
		s.dumpString(out, x)
	case *List:
		return s.dumpAll(out, '[', ']', len(x.elems), level, func(i int) error {
			return s.dump(out, x.elems[i], level+1)
		})
	case *Map:
		keys, err := s.order(x)
		if err != nil {
			return err
		}
		return s.dumpAll(out, '{', '}', len(keys), level, func(i int) error {
			s.dumpString(out, jsonKey(keys[i]))
			out.WriteString(s.key)
			return s.dump(out, x.values[keys[i]], level+1)
		})
	default:
		return fmt.Errorf("tojson: %s is not JSON serializable", quoteType(v))
	}
	return nil
}

func (s jsonStyle) dumpAll(out *strings.Builder, open, shut byte, n, level int, item func(int) error) error {
	if out.Len() > outputMax {
		return fmt.Errorf("the text is over %d bytes", outputMax)
	}
	out.WriteByte(open)
	for i := range n {
		if i > 0 {
			out.WriteString(s.item)
		}
		s.newline(out, level+1)
		if err := item(i); err != nil {
			return err
		}
	}
	if n > 0 {
		s.newline(out, level)
	}
	out.WriteByte(shut)
	return nil
}

func (s jsonStyle) newline(out *strings.Builder, level int) {
	if s.lines {
		out.WriteByte('\n')
		for range level {
			out.WriteString(s.indent)
		}
	}
}

func (s jsonStyle) order(m *Map) ([]any, error) {
	if !s.sortKeys {
		return m.keys, nil
	}
	return sorted(m.keys, func(v any) (any, error) { return v, nil }, false)
}

func jsonKey(k any) string {
	switch x := k.(type) {
	case string:
		return x
	case nil:
		return "null"
	case float64:
		return jsonFloat(x)
	}
	return str(k)
}

// jsonFloat writes a float as Python's json does, with words for what JSON has no form for.
func jsonFloat(x float64) string {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 1):
		return "Infinity"
	case math.IsInf(x, -1):
		return "-Infinity"
	}
	return reprFloat(x)
}

var jsonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

func (s jsonStyle) dumpString(out *strings.Builder, v string) {
	out.WriteByte('"')
	for _, r := range v {
		e, ok := jsonEscapes[r]
		switch {
		case ok:
			out.WriteString(e)
		case r < 0x20 || s.ascii && r >= 0x7f && r < 0x10000:
			out.WriteString(`\u` + hex(r, 4))
		case s.ascii && r >= 0x10000:
			r -= 0x10000
			out.WriteString(`\u` + hex(0xd800+r>>10, 4) + `\u` + hex(0xdc00+r&0x3ff, 4))
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
}
