package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Validator reports whether JSON values are of a schema.
type Validator struct {
	root  any
	exprs map[string]*regexp.Regexp
}

// known are the keys that a validator holds values to.
var known = []string{"type", "properties", "required", "additionalProperties", "items", "prefixItems",
	"minItems", "maxItems",
	"uniqueItems", "enum", "const", "anyOf", "oneOf", "allOf", "not", "$ref", "pattern", "minLength",
	"maxLength", "minimum",
	"maximum", "exclusiveMinimum", "exclusiveMaximum", "minProperties", "maxProperties"}

// NewValidator reads a JSON Schema. Unlike Schema, which allows some of a schema's texts, it takes every value that is of
// the schema, in any order of properties; keys that it does not know are refused, except those that only describe.
func NewValidator(raw []byte) (*Validator, error) {
	v := &Validator{exprs: map[string]*regexp.Regexp{}}
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&v.root); err != nil {
		return nil, err
	}
	return v, v.check(v.root, "#", 0)
}

// check refuses what nobody holds to.
func (v *Validator) check(s any, at string, depth int) error {
	if depth > depthMost {
		return fmt.Errorf("%s lies deeper than %d schemas", at, depthMost)
	}
	m, ok := s.(map[string]any)
	if _, plain := s.(bool); plain {
		return nil
	}
	if !ok {
		return fmt.Errorf("%s is no schema", at)
	}
	for key, x := range m {
		here, inner := at+"/"+key, map[string]any{}
		switch key {
		case "properties", "$defs", "definitions":
			if inner, ok = x.(map[string]any); !ok {
				return fmt.Errorf("%s is no object of schemas", here)
			}
		case "anyOf", "oneOf", "allOf", "prefixItems":
			list, ok := x.([]any)
			if !ok {
				return fmt.Errorf("%s is no list of schemas", here)
			}
			for i, y := range list {
				inner[fmt.Sprint(i)] = y
			}
		case "items", "not", "additionalProperties":
			inner[""] = x
		case "pattern":
			text, _ := x.(string)
			e, err := regexp.Compile(text)
			if err != nil {
				return fmt.Errorf("%s: %w", here, err)
			}
			v.exprs[text] = e
		case "$ref":
			if path, _ := x.(string); v.part(path) == nil {
				return fmt.Errorf("%s leads to no part of this schema", here)
			}
		default:
			if !slices.Contains(known, key) && !slices.Contains(described, key) {
				return fmt.Errorf("%s is not supported", here)
			}
		}
		for name, y := range inner {
			if err := v.check(y, here+"/"+name, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// part is what a pointer within the schema leads to, nil for nothing.
func (v *Validator) part(path string) *any {
	if path != "#" && !strings.HasPrefix(path, "#/") {
		return nil
	}
	at := v.root
	for _, step := range steps(path) {
		m, _ := at.(map[string]any)
		if !has(m, step) {
			return nil
		}
		at = m[step]
	}
	return &at
}

// Text reports whether a text is one JSON value of the schema.
func (v *Validator) Text(text string) bool {
	var x any
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	if d.Decode(&x) != nil {
		return false
	}
	if _, err := d.Token(); err != io.EOF {
		return false
	}
	return v.is(v.root, x, 0)
}

// is reports whether a value is of a schema.
func (v *Validator) is(s, x any, depth int) bool {
	m, ok := s.(map[string]any)
	if !ok {
		yes, _ := s.(bool)
		return yes
	}
	if depth > depthMost { // of a $ref that leads to itself
		return false
	}
	if path, ok := m["$ref"].(string); ok && !v.is(*v.part(path), x, depth+1) {
		return false
	}
	if t, ok := m["type"]; ok && !typedAs(t, x) {
		return false
	}
	if c, ok := m["const"]; ok && !same(c, x) {
		return false
	}
	if l, ok := m["enum"].([]any); ok && !slices.ContainsFunc(l, func(y any) bool { return same(x, y) }) {
		return false
	}
	return v.combined(m, x, depth) && v.sized(m, x) && v.parts(m, x, depth)
}

// combined holds a value to schemas of schemas.
func (v *Validator) combined(m map[string]any, x any, depth int) bool {
	count := func(key string) (n, of int, there bool) {
		l, ok := m[key].([]any)
		for _, s := range l {
			if v.is(s, x, depth+1) {
				n++
			}
		}
		return n, len(l), ok
	}
	if n, _, ok := count("anyOf"); ok && n == 0 {
		return false
	}
	if n, _, ok := count("oneOf"); ok && n != 1 {
		return false
	}
	if n, of, ok := count("allOf"); ok && n != of {
		return false
	}
	s, ok := m["not"]
	return !ok || !v.is(s, x, depth+1)
}

// sized holds a value to bounds.
func (v *Validator) sized(m map[string]any, x any) bool {
	within := func(low, high string, n float64) bool {
		a, ok := m[low].(float64)
		b, too := m[high].(float64)
		return (!ok || n >= a) && (!too || n <= b)
	}
	switch x := x.(type) {
	case float64:
		a, ok := m["exclusiveMinimum"].(float64)
		b, too := m["exclusiveMaximum"].(float64)
		return within("minimum", "maximum", x) && (!ok || x > a) && (!too || x < b)
	case string:
		p, ok := m["pattern"].(string)
		return within("minLength", "maxLength", float64(utf8.RuneCountInString(x))) && (!ok ||
			v.exprs[p].MatchString(x))
	case []any:
		if m["uniqueItems"] == true {
			for i := range x {
				if slices.ContainsFunc(x[:i], func(y any) bool { return same(x[i], y) }) {
					return false
				}
			}
		}
		return within("minItems", "maxItems", float64(len(x)))
	case map[string]any:
		return within("minProperties", "maxProperties", float64(len(x)))
	}
	return true
}

// parts holds elements and properties to their schemas.
func (v *Validator) parts(m map[string]any, x any, depth int) bool {
	switch x := x.(type) {
	case []any:
		first, _ := m["prefixItems"].([]any)
		for i, y := range x {
			s, ok := m["items"]
			if i < len(first) {
				s, ok = first[i], true
			}
			if ok && !v.is(s, y, depth+1) {
				return false
			}
		}
	case map[string]any:
		required, _ := m["required"].([]any)
		for _, name := range required {
			if text, _ := name.(string); !has(x, text) {
				return false
			}
		}
		of, _ := m["properties"].(map[string]any)
		for name, y := range x { // in no order: all have to be
			s, ok := of[name]
			if !ok {
				s, ok = m["additionalProperties"]
			}
			if ok && !v.is(s, y, depth+1) {
				return false
			}
		}
	}
	return true
}

func has(m map[string]any, name string) bool { _, ok := m[name]; return ok }

// typedAs reports whether a value is of a type, or of one of a list.
func typedAs(t, x any) bool {
	if l, ok := t.([]any); ok {
		return slices.ContainsFunc(l, func(y any) bool { return typedAs(y, x) })
	}
	switch y := x.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case float64:
		return t == "number" || t == "integer" && y == math.Trunc(y)
	case string:
		return t == "string"
	case []any:
		return t == "array"
	}
	return t == "object"
}

// same compares JSON values.
func same(a, b any) bool {
	x, err := json.Marshal(a)
	y, other := json.Marshal(b)
	return err == nil && other == nil && bytes.Equal(x, y)
}
