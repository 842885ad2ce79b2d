package mcap

import (
	"fmt"
	"strconv"
	"strings"
)

// message is the definition of a type: its fields in order.
type message struct{ fields []field }

// field is a field of a type: a value, a fixed number of them, or as many as a message says.
type field struct {
	name  string
	kind  string   // of a value that is built in, "" for one of a type
	of    *message // the type
	count int      // values: one for oneValue, as a message says for anyValues
}

const (
	oneValue  = -1
	anyValues = -2
)

// sizes are the bytes of the kinds that are built in; 0 is a text.
var sizes = map[string]int{"bool": 1, "byte": 1, "char": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4,
	"uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "string": 0}

// Bounds of definitions: types of a file, fields of a type, and types within types.
const (
	typesMost  = 1 << 10
	fieldsMost = 1 << 10
	depthMost  = 16
	nameMost   = 1 << 8 // bytes of a field's name
	countMost  = 1 << 24
)

// parse reads the definition of a type called name, in whose text others that it has follow behind lines of "=".
func parse(name, text string) (*message, error) {
	parts := map[string]*strings.Builder{}
	current := name
	for part := range strings.SplitSeq(text, "\n") {
		line := strings.TrimSpace(strings.TrimSuffix(part, "\r"))
		switch {
		case strings.HasPrefix(line, "====="):
			current = ""
		case current == "" && strings.HasPrefix(line, "MSG:"):
			current = strings.TrimSpace(strings.TrimPrefix(line, "MSG:"))
			if len(parts) > typesMost {
				return nil, fmt.Errorf("its definition has over %d types", typesMost)
			}
		default:
			b := parts[short(current)]
			if b == nil {
				b = &strings.Builder{}
				parts[short(current)] = b
			}
			b.WriteString(line + "\n")
		}
	}
	bodies := map[string]string{}
	for name, b := range parts { // each by itself
		bodies[name] = b.String()
	}
	d := &definitions{bodies: bodies, made: map[string]*message{}}
	for _, usual := range []string{"builtin_interfaces/Time", "builtin_interfaces/Duration"} {
		if _, ok := bodies[usual]; !ok {
			bodies[usual] = "int32 sec\nuint32 nanosec\n"
		}
	}
	return d.typed(short(name), 0)
}

// short is a type's name without the folder of its kind: pkg/Type.
func short(name string) string {
	parts := strings.Split(name, "/")
	if len(parts) == 3 {
		return parts[0] + "/" + parts[2]
	}
	return name
}

// definitions are the types of a definition's text.
type definitions struct {
	bodies map[string]string
	made   map[string]*message
}

// typed is a type by its short name.
func (d *definitions) typed(name string, depth int) (*message, error) {
	if m := d.made[name]; m != nil {
		return m, nil
	}
	body, ok := d.bodies[name]
	if !ok || depth > depthMost {
		return nil, fmt.Errorf("its definition has no type %.60q, or types within %d others", name, depthMost)
	}
	m := &message{}
	for line := range strings.SplitSeq(body, "\n") {
		if at := strings.IndexByte(line, '#'); at >= 0 {
			line = line[:at]
		}
		words := strings.Fields(line)
		if len(words) < 2 || strings.Contains(words[1], "=") || len(words) > 2 && strings.HasPrefix(words[2], "=") {
			continue // empty, or a constant
		}
		if len(words[1]) > nameMost {
			return nil, fmt.Errorf("%s has a field whose name has over %d bytes", name, nameMost)
		}
		f, err := d.field(name, words[0], words[1], depth)
		if err != nil {
			return nil, err
		}
		if m.fields = append(m.fields, f); len(m.fields) > fieldsMost {
			return nil, fmt.Errorf("%s has over %d fields", name, fieldsMost)
		}
	}
	d.made[name] = m
	return m, nil
}

// field reads a line of a type.
func (d *definitions) field(in, kind, name string, depth int) (field, error) {
	f := field{name: name, count: oneValue}
	if open := strings.IndexByte(kind, '['); open > 0 && strings.HasSuffix(kind, "]") {
		inside := kind[open+1 : len(kind)-1]
		kind = kind[:open]
		if f.count = anyValues; inside != "" && !strings.HasPrefix(inside, "<=") {
			n, err := strconv.Atoi(inside)
			if err != nil || n < 0 || n > countMost {
				return f, fmt.Errorf("%s: %s has %.20q values", in, name, inside)
			}
			f.count = n
		}
	}
	if bound := strings.Index(kind, "<="); bound > 0 { // of a text
		kind = kind[:bound]
	}
	if _, ok := sizes[kind]; ok {
		f.kind = kind
		return f, nil
	}
	if !strings.Contains(kind, "/") {
		if kind == "Header" {
			kind = "std_msgs/Header"
		} else if at := strings.IndexByte(in, '/'); at > 0 {
			kind = in[:at] + "/" + kind
		}
	}
	var err error
	f.of, err = d.typed(short(kind), depth+1)
	return f, err
}
