package diffusers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
)

// Marshal writes the struct that of points at as settings of a class, as diffusers does: all keys in order,
// two spaces, and whole numbers of a float's key with a point. Reading gives back an equal struct.
func Marshal(class string, of any) []byte {
	lines := []string{fmt.Sprintf("  %q: %q", classKey, class), fmt.Sprintf("  %q: %q", versionKey, Version)}
	keys := Fields(of)
	slices.SortFunc(keys, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
	for _, k := range keys {
		lines = append(lines, fmt.Sprintf("  %q: %s", k.Name, pythonic(k.Value, "  ")))
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
		if s, is := v.Interface().(Size); is && len(s) == 1 {
			return pythonic(v.Index(0), indent)
		}
		return pythonList(v, indent)
	}
	text, err := json.Marshal(v.Interface())
	if err != nil {
		panic("diffusers: a key of a type that JSON does not have: " + err.Error())
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
		panic("diffusers: a number that JSON does not have: " + err.Error())
	}
	if !bytes.ContainsAny(text, ".e") {
		return string(text) + ".0"
	}
	return string(text)
}
