package grammar

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// combining are the keys that put schemas together.
var combining = []string{"allOf", "anyOf", "oneOf"}

// combined reads schemas of schemas: of anyOf and oneOf each alternative, with what stands beside it, and of allOf one
// schema that says what all of them say. It is false for a schema without such keys.
func (s *schema) combined(k *keys, depth int) (n node, what string, ok bool, err error) {
	of := map[string][]json.RawMessage{}
	beside := map[string]json.RawMessage{}
	for name, raw := range k.given {
		if !slices.Contains(combining, name) {
			beside[name] = raw
			continue
		}
		var l []json.RawMessage
		if k.has(name); json.Unmarshal(raw, &l) != nil || len(l) == 0 {
			return n, "", true, k.fault(name, "is no list of schemas")
		}
		of[name], what = l, "an "+name
	}
	if what == "" {
		return n, "", false, nil
	}
	for name := range beside {
		k.has(name)
	}
	for i, x := range of["allOf"] {
		if len(of) == 1 && len(of["allOf"]) == 1 && len(beside) == 0 { // it may lead to itself, by a rule
			n, err = s.node(x, k.at+"/allOf/0", depth+1)
			return n, what, true, err
		}
		if err := s.join(beside, x, depth); err != nil {
			return n, "", true, k.fault("allOf", "cannot be put together, at schema %d: %v", i, err)
		}
	}
	name := cmp.Or(map[bool]string{true: "anyOf"}[of["anyOf"] != nil], map[bool]string{true: "oneOf"}[of["oneOf"] != nil])
	if name == "" {
		n, err = s.node(object(beside), k.at, depth+1)
		return n, what, true, err
	}
	if name == "anyOf" && of["oneOf"] != nil {
		if beside["oneOf"], err = json.Marshal(of["oneOf"]); err != nil {
			return n, "", true, err
		}
	}
	if err := s.apart(name, of[name], depth); err != nil {
		return n, "", true, k.fault(name, "%v", err)
	}
	for i, x := range of[name] {
		if len(beside) > 0 {
			m := map[string]json.RawMessage{}
			for key, raw := range beside {
				m[key] = raw
			}
			if err := s.join(m, x, depth); errors.Is(err, errNothing) {
				continue
			} else if err != nil {
				return n, "", true, k.fault(name, "cannot be put together with what stands beside it, at schema %d: %v", i, err)
			}
			x = object(m)
		}
		m, err := s.node(x, fmt.Sprintf("%s/%s/%d", k.at, name, i), depth+1)
		if err != nil {
			return n, "", true, err
		}
		n.list = append(n.list, m)
	}
	if len(n.list) == 0 {
		return n, "", true, k.fault(name, "has no schema of which a value is that is of what stands beside it")
	}
	return alt(n.list...), what, true, nil
}

// apart says why two alternatives of oneOf may both hold of a value, which must be of one alone. Those of anyOf may.
func (s *schema) apart(name string, l []json.RawMessage, depth int) error {
	for i := range l {
		for j := range i {
			if name == "oneOf" && !s.disjoint(l[i], l[j], depth) {
				return fmt.Errorf("has schemas %d and %d, which may both hold of a value: tell them apart by a type, a constant "+
					"or a required property, or say anyOf", j, i)
			}
		}
	}
	return nil
}

// object is the text of a schema. Its keys are in no order, since those of properties lie within a value.
func object(m map[string]json.RawMessage) json.RawMessage {
	b, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("grammar: a schema cannot be written: %v", err)) // its values were read
	}
	return b
}

// resolved are the keys of a schema, of what its $ref leads to as well.
func (s *schema) resolved(raw json.RawMessage, depth int) (map[string]json.RawMessage, error) {
	if depth > depthMost {
		return nil, fmt.Errorf("it lies deeper than %d schemas", depthMost)
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil || m == nil {
		return nil, fmt.Errorf("%s is no object", clip(raw))
	}
	for _, name := range described {
		delete(m, name)
	}
	to, ok := m["$ref"]
	if !ok {
		return m, nil
	}
	delete(m, "$ref")
	part, err := s.part(to)
	if err != nil {
		return nil, err
	}
	own, err := s.resolved(part, depth+1)
	if err == nil && len(m) > 0 {
		err = s.join(own, object(m), depth+1)
	}
	return own, err
}

var errNothing = errors.New("nothing is of both")

// join puts a schema's keys to those of another: what is of the outcome is of both.
func (s *schema) join(to map[string]json.RawMessage, raw json.RawMessage, depth int) error {
	from, err := s.resolved(raw, depth+1)
	if err != nil {
		return err
	}
	properties, err := closed(to, from)
	if err != nil {
		return err
	}
	for key, b := range from {
		a, both := to[key]
		switch {
		case key == "properties":
		case !both || bytes.Equal(a, b):
			to[key] = b
		default:
			if to[key], err = joined(key, a, b); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	if properties != nil {
		to["properties"] = properties
	}
	return nil
}

// joined is what two values of a key say together.
func joined(key string, a, b json.RawMessage) (json.RawMessage, error) {
	switch key {
	case "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties":
		return larger(a, b, 1)
	case "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties":
		return larger(a, b, -1)
	case "required":
		return together(a, b, func(x, y []json.RawMessage) []json.RawMessage {
			for _, name := range y {
				if !among(x, name) {
					x = append(x, name)
				}
			}
			return x
		})
	case "type", "enum":
		out, err := together(a, b, func(x, y []json.RawMessage) []json.RawMessage {
			var both []json.RawMessage
			for _, v := range x {
				if key == "type" && alike(v, numberType) && !among(y, v) && !among(x, intType) {
					v = intType // integers are numbers
				}
				if among(y, v) || key == "type" && alike(v, intType) && among(y, numberType) {
					both = append(both, v)
				}
			}
			return both
		})
		if err == nil && string(out) == "[]" {
			err = errNothing
		}
		return out, err
	case "items", "additionalProperties":
		for i, x := range []json.RawMessage{a, b} {
			if string(bytes.TrimSpace(x)) == "false" {
				return x, nil
			}
			if string(bytes.TrimSpace(x)) == "true" {
				return []json.RawMessage{b, a}[i], nil
			}
		}
		return json.Marshal(map[string][]json.RawMessage{"allOf": {a, b}})
	case "allOf":
		return together(a, b, func(x, y []json.RawMessage) []json.RawMessage { return append(x, y...) })
	}
	return nil, errors.New("both say something of it, and not the same")
}

var intType, numberType = json.RawMessage(`"integer"`), json.RawMessage(`"number"`)

// among reports whether a value is one of some.
func among(l []json.RawMessage, v json.RawMessage) bool {
	return slices.ContainsFunc(l, func(x json.RawMessage) bool { return alike(x, v) })
}

// alike reports whether two texts are one value.
func alike(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && same(x, y)
}

// listed is a list, or the list of one value.
func listed(raw json.RawMessage) (l []json.RawMessage) {
	if json.Unmarshal(raw, &l) != nil {
		l = []json.RawMessage{raw}
	}
	return l
}

func together(a, b json.RawMessage, f func(x, y []json.RawMessage) []json.RawMessage) (json.RawMessage, error) {
	out := f(listed(a), listed(b))
	if out == nil {
		out = []json.RawMessage{}
	}
	return json.Marshal(out)
}

// larger is the larger of two numbers times a sign.
func larger(a, b json.RawMessage, sign int) (json.RawMessage, error) {
	x, ok := new(big.Rat).SetString(string(a))
	y, too := new(big.Rat).SetString(string(b))
	switch {
	case !ok || !too:
		return nil, errors.New("is no number")
	case x.Cmp(y)*sign >= 0:
		return a, nil
	}
	return b, nil
}

// closed are the properties of two schemas together, in the order of the first and then of the second. A schema that
// allows no others has none of what the other one names alone.
func closed(a, b map[string]json.RawMessage) (json.RawMessage, error) {
	if a["properties"] == nil && b["properties"] == nil {
		return nil, nil
	}
	sides := [2]map[string]json.RawMessage{a, b}
	var lists [2][]member
	for i, x := range sides {
		if x["patternProperties"] != nil {
			return nil, errors.New("patternProperties beside properties of another schema")
		}
		if raw := x["properties"]; raw != nil {
			var err error
			if lists[i], err = members(raw); err != nil {
				return nil, fmt.Errorf("properties %w", err)
			}
		}
	}
	var out bytes.Buffer
	put := func(name string, of json.RawMessage) {
		key, _ := json.Marshal(name) // a text
		fmt.Fprintf(&out, "%s%s:%s", map[bool]string{true: ",", false: "{"}[out.Len() > 0], key, of)
	}
	for i, list := range lists {
		for _, m := range list {
			at := slices.IndexFunc(lists[1-i], func(x member) bool { return x.key == m.key })
			more := sides[1-i]["additionalProperties"]
			switch {
			case at >= 0 && i == 1: // it stands there
			case at >= 0:
				put(m.key, object(map[string]json.RawMessage{"allOf": slices.Concat([]byte("["), m.value, []byte(","),
					lists[1][at].value, []byte("]"))}))
			case string(bytes.TrimSpace(more)) == "false":
				for _, x := range sides {
					if among(listed(x["required"]), json.RawMessage(fmt.Sprintf("%q", m.key))) {
						return nil, fmt.Errorf("%q is required by one and not allowed by another", m.key)
					}
				}
			case more != nil && string(bytes.TrimSpace(more)) != "true":
				put(m.key, object(map[string]json.RawMessage{"allOf": slices.Concat([]byte("["), m.value, []byte(","), more,
					[]byte("]"))}))
			default:
				put(m.key, m.value)
			}
		}
	}
	if out.Len() == 0 {
		return json.RawMessage("{}"), nil
	}
	return append(out.Bytes(), '}'), nil
}

// disjoint reports whether it is certain that no value is of both schemas: by their types or constants, or by a
// property that both require, or one does and the other does not allow.
func (s *schema) disjoint(a, b json.RawMessage, depth int) bool {
	x, err := s.resolved(a, depth+1)
	y, fault := s.resolved(b, depth+1)
	if err != nil || fault != nil || depth > depthMost {
		return false
	}
	for i, m := range []map[string]json.RawMessage{x, y} {
		for _, key := range []string{"anyOf", "oneOf"} {
			if l := m[key]; l != nil && !slices.ContainsFunc(listed(l), func(z json.RawMessage) bool {
				return !s.disjoint(z, []json.RawMessage{b, a}[i], depth+1)
			}) {
				return true
			}
		}
	}
	if u, v := constants(x), constants(y); u != nil && v != nil {
		return !slices.ContainsFunc(u, func(z json.RawMessage) bool { return among(v, z) })
	}
	t, u := kinds(x), kinds(y)
	if t != nil && u != nil && !slices.ContainsFunc(t, func(z string) bool { return slices.Contains(u, z) }) {
		return true
	}
	return s.told(x, y, depth) || s.told(y, x, depth)
}

// told reports whether a property that the first schema of objects requires tells it from the second.
func (s *schema) told(x, y map[string]json.RawMessage, depth int) bool {
	if t, u := kinds(x), kinds(y); !slices.Equal(t, []string{"object"}) || !slices.Equal(u, t) {
		return false
	}
	var mine, others map[string]json.RawMessage
	_, _ = json.Unmarshal(x["properties"], &mine), json.Unmarshal(y["properties"], &others) // none, or read
	for _, raw := range listed(x["required"]) {
		var name string
		if json.Unmarshal(raw, &name) != nil || mine[name] == nil {
			continue
		}
		if of := others[name]; of == nil {
			if string(bytes.TrimSpace(y["additionalProperties"])) == "false" && y["patternProperties"] == nil {
				return true
			}
		} else if among(listed(y["required"]), raw) && s.disjoint(mine[name], of, depth+1) {
			return true
		}
	}
	return false
}

// constants are the values that a schema allows, nil where it names none.
func constants(m map[string]json.RawMessage) []json.RawMessage {
	if c := m["const"]; c != nil {
		return []json.RawMessage{c}
	}
	if l := m["enum"]; l != nil {
		return listed(l)
	}
	return nil
}

// kinds are the types that a schema allows, integers as numbers; nil where it does not say.
func kinds(m map[string]json.RawMessage) (out []string) {
	add := func(t string) {
		if t == "integer" {
			t = "number"
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	switch l := constants(m); {
	case l != nil:
		for _, raw := range l {
			add(map[byte]string{'"': "string", '{': "object", '[': "array", 't': "boolean", 'f': "boolean", 'n': "null"}[bytes.TrimSpace(raw)[0]])
		}
		if slices.Contains(out, "") {
			out[slices.Index(out, "")] = "number"
		}
	case m["type"] != nil:
		for _, raw := range listed(m["type"]) {
			var t string
			_ = json.Unmarshal(raw, &t) // another value is no type, and refused where it is read
			add(t)
		}
	case m["properties"] != nil:
		add("object")
	}
	return out
}
