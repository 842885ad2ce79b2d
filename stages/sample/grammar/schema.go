package grammar

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Schema is the texts of JSON values of a JSON Schema (2020-12). It knows type, properties, required,
// patternProperties, propertyNames, additionalProperties, items, prefixItems, minItems, maxItems, enum, const, anyOf,
// oneOf of schemas that no value is of two of, allOf, $ref within the schema, pattern, minLength, maxLength, format (those
// of formats), and of numbers minimum, maximum, their exclusive forms and multipleOf. Another key is an error that names it, except those that only describe. Texts are some
// of those that the schema allows, and none else: properties come in the schema's order, others only where
// additionalProperties says so, and numbers have at most 15 digits before and behind the point.
func Schema(raw json.RawMessage) (*Grammar, error) {
	rules := jsonRules()
	n, err := schemaNode(raw, rules, "")
	if err != nil {
		return nil, err
	}
	rules["text"] = n
	return compile(rules, "text")
}

// schemaNode is the expression of a schema, whose further rules have names with a prefix.
func schemaNode(raw json.RawMessage, rules map[string]node, prefix string) (node, error) {
	if len(raw) > textMost {
		return node{}, fmt.Errorf("# cannot be read: %w", errLong)
	}
	s := &schema{root: raw, rules: rules, refs: map[string]bool{}, prefix: prefix,
		read: map[string]map[string]json.RawMessage{}}
	n, err := s.node(raw, "#", 0)
	if err == nil && s.tries > triesMost {
		err = errLarge
	}
	return n, err
}

// schema compiles a schema.
type schema struct {
	root  json.RawMessage
	rules map[string]node
	refs  map[string]bool // that have a rule, or are about to
	names int             // of further rules
	// prefix of the names of rules
	prefix string
	read   map[string]map[string]json.RawMessage // objects that a $ref went through, by their pointers
	tries  int                                   // beginnings of names that others are told from
}

// described are keys that say nothing of values.
var described = []string{"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "title", "description",
	"default", "examples", "example", "deprecated", "readOnly", "writeOnly", "strict", "discriminator"}

// depthMost bounds schemas within schemas.
const depthMost = 200

// keys are a schema's, without those that describe.
type keys struct {
	at    string // of the schema, a JSON pointer
	given map[string]json.RawMessage
	read  map[string]bool
}

func (k *keys) has(name string) (json.RawMessage, bool) {
	raw, ok := k.given[name]
	k.read[name] = true
	return raw, ok
}

// number is a key's number of parts, usual where it is not given.
func (k *keys) number(name string, usual int) (int, error) {
	raw, ok := k.has(name)
	if !ok {
		return usual, nil
	}
	x, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || x < 0 || x != float64(int(x)) || x > CodeMost {
		return 0, k.fault(name, "is %s, and no number from 0 to %d", clip(raw), CodeMost)
	}
	return int(x), nil
}

func (k *keys) fault(name, format string, args ...any) error {
	return fmt.Errorf("%s/%s %s", k.at, name, fmt.Sprintf(format, args...))
}

// rest refuses keys that nobody has read.
func (k *keys) rest(what string) error {
	var unread []string
	for name := range k.given {
		if !k.read[name] {
			unread = append(unread, name)
		}
	}
	if len(unread) == 0 {
		return nil
	}
	slices.Sort(unread)
	return fmt.Errorf("%s has %s, which is not supported for %s", k.at, strings.Join(unread, ", "), what)
}

// node is the expression of a schema.
func (s *schema) node(raw json.RawMessage, at string, depth int) (node, error) {
	switch strings.TrimSpace(string(raw)) {
	case "true":
		return ref(ruleValue), nil
	case "false":
		return node{}, fmt.Errorf("%s is false, which no value is", at)
	}
	if depth > depthMost {
		return node{}, fmt.Errorf("%s lies deeper than %d schemas", at, depthMost)
	}
	list, err := members(raw)
	if err != nil {
		return node{}, fmt.Errorf("%s %w", at, err)
	}
	k := &keys{at, map[string]json.RawMessage{}, map[string]bool{}}
	for _, m := range list {
		if !slices.Contains(described, m.key) {
			k.given[m.key] = m.value
		}
	}
	n, what, err := s.form(k, depth)
	if err != nil {
		return node{}, err
	}
	return n, k.rest(what)
}

// form reads what kind of schema there is.
func (s *schema) form(k *keys, depth int) (n node, what string, err error) {
	if raw, ok := k.has("$ref"); ok {
		n, err = s.reference(k, raw, depth)
		return n, "a $ref", err
	}
	if raw, ok := k.has("const"); ok {
		n, err = s.constants(k, "const", []json.RawMessage{raw})
		return n, "a const", err
	}
	if raw, ok := k.has("enum"); ok {
		var l []json.RawMessage
		if json.Unmarshal(raw, &l) != nil || len(l) == 0 {
			return n, "", k.fault("enum", "is %s, and no list of values", clip(raw))
		}
		n, err = s.constants(k, "enum", l)
		return n, "an enum", err
	}
	if n, what, ok, err := s.combined(k, depth); ok {
		return n, what, err
	}
	types, err := typesOf(k)
	if err != nil {
		return n, "", err
	}
	if len(types) == 0 && len(k.given) > 0 {
		return n, "a schema without type", nil // rest refuses what it has
	}
	if len(types) == 0 {
		return ref(ruleValue), "", nil
	}
	for _, t := range types {
		m, err := s.typed(k, t, depth)
		if err != nil {
			return n, "", err
		}
		n.list = append(n.list, m)
	}
	return alt(n.list...), "the type " + strings.Join(types, ", "), nil
}

var typeNames = []string{"null", "boolean", "number", "integer", "string", "array", "object"}

// typesOf are those that a schema allows.
func typesOf(k *keys) ([]string, error) {
	raw, ok := k.has("type")
	if !ok {
		for _, x := range []struct{ key, of string }{{"properties", "object"}, {"items", "array"},
			{"prefixItems", "array"}} {
			if _, there := k.given[x.key]; there {
				return []string{x.of}, nil
			}
		}
		return nil, nil
	}
	var one string
	var l []string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	if json.Unmarshal(raw, &l) != nil || len(l) == 0 {
		return nil, k.fault("type", "is %s, and no type or list of types", clip(raw))
	}
	for i, t := range l {
		if slices.Contains(l[:i], t) { // so there are no more than there are types, and one that is none
			return nil, k.fault("type", "has %.40q twice", t)
		}
		if !slices.Contains(typeNames, t) {
			return nil, k.fault("type", "is %.40q, and none of JSON's", t)
		}
	}
	return l, nil
}

// typed is the expression of values of one type.
func (s *schema) typed(k *keys, t string, depth int) (node, error) {
	switch t {
	case "null":
		return lit("null"), nil
	case "boolean":
		return alt(lit("true"), lit("false")), nil
	case "number":
		return s.number(k)
	case "integer":
		return s.integer(k)
	case "string":
		return s.text(k)
	case "array":
		return s.array(k, depth)
	case "object":
		return s.object(k, depth)
	}
	return node{}, k.fault("type", "is %.40q, and none of JSON's", t)
}

// constants is one of some values, of those that all else allows that the schema says of one value.
func (s *schema) constants(k *keys, name string, l []json.RawMessage) (node, error) {
	rest := map[string]json.RawMessage{}
	for key, raw := range k.given {
		if key != name {
			rest[key] = raw
			k.has(key)
		}
	}
	v, err := NewValidator(object(rest))
	if err != nil {
		return node{}, k.fault(name, "stands beside what it cannot be held to: %v", err)
	}
	var n []node
	for _, x := range l {
		text, err := written(x)
		if err != nil {
			return node{}, k.fault(name, "%v", err)
		}
		yes, err := v.Text(text)
		if err != nil {
			return node{}, k.fault(name, "%v", err)
		}
		if yes {
			n = append(n, lit(text))
		}
	}
	if len(n) == 0 {
		return node{}, k.fault(name, "has no value that is of the rest of the schema")
	}
	return alt(n...), nil
}

// reference is the rule of another part of the schema, made when it is met first.
func (s *schema) reference(k *keys, raw json.RawMessage, depth int) (node, error) {
	var path string
	if json.Unmarshal(raw, &path) == nil && s.refs[path] {
		return ref(s.prefix + path), nil
	}
	s.refs[path] = true
	part, err := s.part(raw)
	if err != nil {
		return node{}, k.fault("$ref", "%v", err)
	}
	n, err := s.node(part, path, depth+1)
	s.rules[s.prefix+path] = n
	return ref(s.prefix + path), err
}

// part is what a $ref leads to.
func (s *schema) part(raw json.RawMessage) (json.RawMessage, error) {
	var path string
	if json.Unmarshal(raw, &path) != nil || path != "#" && !strings.HasPrefix(path, "#/") {
		return nil, fmt.Errorf("is %s, and leads to no part of this schema", clip(raw))
	}
	part := s.root
	for n, at := 0, "#"; at != path; n++ {
		name, _, _ := strings.Cut(path[len(at)+1:], "/")
		of, known := s.read[at]
		if !known && n < 2*depthMost && json.Unmarshal(part, &of) == nil { // a schema and its name are two steps
			s.read[at] = of
		}
		if part = of[unescaped(name)]; part == nil {
			return nil, fmt.Errorf("is %.80q, and there is no such part", path)
		}
		at += "/" + name
	}
	return part, nil
}

// steps are the keys of a pointer within a schema, # and then / before each.
func steps(path string) (out []string) {
	for _, s := range strings.Split(path, "/")[1:] {
		out = append(out, unescaped(s))
	}
	return out
}

func unescaped(step string) string { return pointers.Replace(step) }

// pointers has what stands for / and ~ in pointers.
var pointers = strings.NewReplacer("~1", "/", "~0", "~")

// array is the expression of arrays.
func (s *schema) array(k *keys, depth int) (node, error) {
	least, err := k.number("minItems", 0)
	if err != nil {
		return node{}, err
	}
	most, err := k.number("maxItems", -1)
	if err != nil {
		return node{}, err
	}
	var items []node
	if raw, ok := k.has("prefixItems"); ok {
		var l []json.RawMessage
		if json.Unmarshal(raw, &l) != nil {
			return node{}, k.fault("prefixItems", "is %s, and no list of schemas", clip(raw))
		}
		for i, x := range l {
			n, err := s.node(x, fmt.Sprintf("%s/prefixItems/%d", k.at, i), depth+1)
			if err != nil {
				return node{}, err
			}
			items = append(items, n)
		}
	}
	more := ref(ruleValue)
	raw, given := k.has("items")
	if given && strings.TrimSpace(string(raw)) == "false" {
		if most = len(items); least > most {
			return node{}, k.fault("minItems", "is more than there may be")
		}
	} else if given {
		n, err := s.node(raw, k.at+"/items", depth+1)
		if err != nil {
			return node{}, err
		}
		more = s.rule(n)
	}
	if most >= 0 && least > most {
		return node{}, k.fault("minItems", "is more than maxItems")
	}
	return seq(lit("["), ref(ruleSpace), elements(items, more, least, most), lit("]")), nil
}

// elements are from least to most elements, most < 0 for any number: some first ones, then others.
func elements(items []node, more node, least, most int) node {
	if most == 0 {
		return seq()
	}
	if len(items) == 0 {
		n := list(more, max(0, least-1), max(-1, most-1))
		if least == 0 {
			return opt(n)
		}
		return n
	}
	behind := seq()
	for i := len(items); i > 0; i-- { // what may follow i of them
		rest := behind
		if i == len(items) {
			bound := -1
			if most >= 0 {
				bound = max(0, most-i)
			}
			rest = rep(seq(comma(), more), max(0, least-i), bound)
		} else if most >= 0 && i >= most {
			rest = seq()
		} else {
			rest = seq(comma(), items[i], behind)
			if i >= least {
				rest = opt(rest)
			}
		}
		behind = rest
	}
	n := seq(items[0], behind, ref(ruleSpace))
	if least == 0 {
		return opt(n)
	}
	return n
}

// rule gives an expression a name, so that it lies in memory once.
func (s *schema) rule(n node) node {
	if n.kind == reference {
		return n
	}
	s.names++
	name := fmt.Sprintf("%s part %d", s.prefix, s.names)
	s.rules[name] = n
	return ref(name)
}
