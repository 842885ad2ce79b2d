package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Validator reports whether JSON values are of a schema.
type Validator struct {
	root  any
	exprs map[string]*regexp.Regexp
	refs  map[string]int // pointers that $ref names: 1 is followed, 2 has been
	steps int            // of one value
}

// stepsMost bounds the schemas, and values of enum, that the parts of one value are held to, one after the other.
const stepsMost = 1 << 20

// errSteps says that a value took more.
var errSteps = fmt.Errorf("the value took more than %d steps: the schema repeats itself too often", stepsMost)

// known are the keys that a validator holds values to.
var known = []string{"type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems",
	"maxItems", "uniqueItems", "enum", "const", "anyOf", "oneOf", "allOf", "not", "$ref", "pattern", "minLength",
	"maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minProperties", "maxProperties", "multipleOf"}

// NewValidator reads a JSON Schema. Unlike Schema, which allows some of a schema's texts, it takes every value that is of
// the schema, in any order of properties; keys that it does not know are refused, except those that only describe, and
// so is a $ref that leads to itself with no part of a value between, which nothing could satisfy.
func NewValidator(raw []byte) (*Validator, error) {
	if len(raw) > textMost {
		return nil, fmt.Errorf("# cannot be read: %w", errLong)
	}
	v := &Validator{exprs: map[string]*regexp.Regexp{}, refs: map[string]int{}}
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
		case "properties", "patternProperties", "$defs", "definitions":
			if inner, ok = x.(map[string]any); !ok {
				return fmt.Errorf("%s is no object of schemas", here)
			}
			for text := range inner {
				if key != "patternProperties" {
					break
				}
				if err := v.expr(text, here); err != nil {
					return err
				}
			}
		case "anyOf", "oneOf", "allOf", "prefixItems":
			list, ok := x.([]any)
			if !ok {
				return fmt.Errorf("%s is no list of schemas", here)
			}
			for i, y := range list {
				inner[fmt.Sprint(i)] = y
			}
		case "items", "not", "additionalProperties", "propertyNames":
			inner[""] = x
		case "pattern":
			text, _ := x.(string)
			if err := v.expr(text, here); err != nil {
				return err
			}
		case "$ref":
			if err := v.checkRef(x, here); err != nil {
				return err
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

// expr reads an expression.
func (v *Validator) expr(text, here string) error {
	e, err := regexp.Compile(text)
	if err != nil {
		return fmt.Errorf("%s: %w", here, err)
	}
	v.exprs[text] = e
	return nil
}

// multiple reports whether a number is one of another, as their decimal texts are.
func multiple(x, of float64) bool {
	a, ok := new(big.Rat).SetString(strconv.FormatFloat(x, 'g', -1, 64))
	b, too := new(big.Rat).SetString(strconv.FormatFloat(of, 'g', -1, 64))
	return ok && too && b.Sign() > 0 && a.Quo(a, b).IsInt()
}

// checkRef refuses a $ref that leads nowhere, or back to itself, and checks what it leads to, which may lie where
// no schemas are.
func (v *Validator) checkRef(x any, here string) error {
	path, _ := x.(string)
	part := v.part(path)
	if part == nil {
		return fmt.Errorf("%s leads to no part of this schema", here)
	}
	if v.refs[path] > 0 {
		return nil
	}
	if v.endless(path) {
		return fmt.Errorf("%s leads back to itself, with no part of a value between", here)
	}
	return v.check(*part, path, 0)
}

// endless reports whether a pointer leads to itself by way of schemas of the same value.
func (v *Validator) endless(path string) bool {
	if v.refs[path] > 0 {
		return v.refs[path] == 1
	}
	v.refs[path] = 1
	defer func() { v.refs[path] = 2 }()
	part := v.part(path)
	return part != nil && v.meets(*part)
}

// meets is endless for what a schema holds the same value to.
func (v *Validator) meets(s any) bool {
	m, _ := s.(map[string]any)
	path, ok := m["$ref"].(string)
	if ok && v.endless(path) || m["not"] != nil && v.meets(m["not"]) {
		return true
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		if l, _ := m[key].([]any); slices.ContainsFunc(l, v.meets) {
			return true
		}
	}
	return false
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

// Text reports whether a text is one JSON value of the schema. An error says that this takes too long to say.
func (v *Validator) Text(text string) (bool, error) {
	var x any
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	if d.Decode(&x) != nil {
		return false, nil
	}
	if _, err := d.Token(); err != io.EOF {
		return false, nil
	}
	w := &Validator{root: v.root, exprs: v.exprs} // with steps of its own: v is for several goroutines
	if yes := w.is(v.root, x, 0); w.steps <= stepsMost {
		return yes, nil
	}
	return false, errSteps
}

// is reports whether a value is of a schema.
func (v *Validator) is(s, x any, depth int) bool {
	if v.steps++; v.steps > stepsMost { // Text says so
		return false
	}
	m, ok := s.(map[string]any)
	if !ok {
		yes, _ := s.(bool)
		return yes
	}
	if depth > depthMost { // of a value within values
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
	if l, ok := m["enum"].([]any); ok && !v.among(l, x) {
		return false
	}
	return v.combined(m, x, depth) && v.sized(m, x) && v.parts(m, x, depth)
}

// among reports whether a value is one of a list.
func (v *Validator) among(l []any, x any) bool {
	v.steps += len(l)
	return v.steps <= stepsMost && slices.ContainsFunc(l, func(y any) bool { return same(x, y) })
}

// combined holds a value to schemas of schemas.
func (v *Validator) combined(m map[string]any, x any, depth int) bool {
	count := func(key string) (n, of int, there bool) {
		l, ok := m[key].([]any)
		for _, s := range l {
			if v.steps > stepsMost {
				break
			}
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
		of, parts := m["multipleOf"].(float64)
		return within("minimum", "maximum", x) && (!ok || x > a) && (!too || x < b) && (!parts || multiple(x, of))
	case string:
		p, ok := m["pattern"].(string)
		return within("minLength", "maxLength", float64(utf8.RuneCountInString(x))) && (!ok ||
			v.exprs[p].MatchString(x))
	case []any:
		if m["uniqueItems"] == true {
			seen := map[string]bool{}
			for _, y := range x {
				text, err := json.Marshal(y)
				if err != nil || seen[string(text)] {
					return false
				}
				seen[string(text)] = true
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
		patterns, _ := m["patternProperties"].(map[string]any)
		for name, y := range x { // in no order: all have to be
			s, ok := of[name]
			if ok && !v.is(s, y, depth+1) {
				return false
			}
			for text, s := range patterns {
				if !v.exprs[text].MatchString(name) {
					continue
				}
				if ok = true; !v.is(s, y, depth+1) {
					return false
				}
			}
			if s, more := m["additionalProperties"]; more && !ok && !v.is(s, y, depth+1) {
				return false
			}
			if s, more := m["propertyNames"]; more && !v.is(s, name, depth+1) {
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
