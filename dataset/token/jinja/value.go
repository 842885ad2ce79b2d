package jinja

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A value of the language is one of: nil (none), Undefined, bool, int64, float64, string, *List, *Map,
// *namespace, *function, *loop. Values are immutable, except the attributes of a namespace.

// Undefined is what a missing name, key or attribute gives. It prints as nothing, is false and empty, and
// anything else done with it is an error that names it.
type Undefined struct{ Name string }

// List is a Python list or tuple.
type List struct {
	elems []any
	tuple bool
	depth int // of nested lists and maps, 1 for a flat list

	fields []string // names of the elements of a tuple, if they have some
}

// Elems returns the elements. The slice is the list's own.
func (l *List) Elems() []any { return l.elems }

// Map is a Python dict: it keeps the order in which keys were set.
type Map struct {
	keys   []any
	values map[any]any
	depth  int
}

// NewMap returns an empty Map.
func NewMap() *Map { return &Map{values: map[any]any{}, depth: 1} }

// Set enters a key, which keeps its place if it is there already. The key must be a string, number, bool or nil.
func (m *Map) Set(key, value any) {
	key = hashKey(key)
	if _, ok := m.values[key]; !ok {
		m.keys = append(m.keys, key)
	}
	m.values[key] = value
	m.depth = max(m.depth, 1+depthOf(value))
}

// Get returns the value of a key.
func (m *Map) Get(key any) (any, bool) {
	v, ok := m.values[hashKey(key)]
	return v, ok
}

// Keys returns the keys in order. The slice is the map's own.
func (m *Map) Keys() []any { return m.keys }

// hashKey makes keys that are equal in Python equal in Go: 1, 1.0 and true are one key.
func hashKey(key any) any {
	switch k := key.(type) {
	case bool:
		return toInt(k)
	case float64:
		if i := int64(k); float64(i) == k {
			return i
		}
	}
	return key
}

// hashable says whether v may be a key.
func hashable(v any) bool {
	switch v.(type) {
	case nil, bool, int64, float64, string:
		return true
	}
	return false
}

func toInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// namespace is the one value with attributes that templates may set.
type namespace struct{ vars *Map }

// function is a macro, a method of a value or a global function.
type function struct {
	name string
	call func(*state, arguments) (any, error)
}

// arguments of a call; named ones in the order written.
type arguments struct {
	pos   []any
	named *Map
}

// NewList returns a list of values of the language. It keeps the slice, which must not change afterwards.
func NewList(elems []any) *List { return newList(elems, false) }

func newList(elems []any, isTuple bool) *List {
	l := &List{elems: elems, tuple: isTuple, depth: 1}
	for _, v := range elems {
		l.depth = max(l.depth, 1+depthOf(v))
	}
	return l
}

// depthOf is how deep lists and maps are nested in v.
func depthOf(v any) int {
	switch x := v.(type) {
	case *List:
		return x.depth
	case *Map:
		return x.depth
	}
	return 0
}

// shallow refuses values so deeply nested that going through them could exhaust the stack.
func shallow(v any) (any, error) {
	if depthOf(v) > depthMax {
		return nil, fmt.Errorf("lists and dicts are nested over %d deep", depthMax)
	}
	return v, nil
}

func list(elems []any) *List         { return newList(elems, false) }
func tuple(elems ...any) *List       { return newList(elems, true) }
func isUndefined(v any) bool         { _, ok := v.(Undefined); return ok }
func undefined(name string) any      { return Undefined{name} }
func quoteType(v any) string         { return "'" + typeName(v) + "'" }
func undefinedErr(u Undefined) error { return fmt.Errorf("'%s' is undefined", u.Name) }

// typeName is Python's name of v's type.
func typeName(v any) string {
	switch x := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *List:
		if x.tuple {
			return "tuple"
		}
		return "list"
	case *Map:
		return "dict"
	case Undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	}
	return "function"
}

// truth is Python's bool(v).
func truth(v any) bool {
	switch x := v.(type) {
	case nil, Undefined:
		return false
	case bool:
		return x
	case int64:
		return x != 0
	case float64:
		return x != 0
	case string:
		return x != ""
	case *List:
		return len(x.elems) > 0
	case *Map:
		return len(x.keys) > 0
	}
	return true
}

// number returns v as float64 and whether it is a number; bool counts as one, as in Python.
func number(v any) (float64, bool) {
	switch x := v.(type) {
	case bool:
		return float64(toInt(x)), true
	case int64:
		return float64(x), true
	case float64:
		return x, true
	}
	return 0, false
}

// integer returns v as int64 if it is an integer or bool.
func integer(v any) (int64, bool) {
	switch x := v.(type) {
	case bool:
		return toInt(x), true
	case int64:
		return x, true
	}
	return 0, false
}

// compareMax bounds the elements looked at in one comparison.
const compareMax = 1 << 20

// equal is Python's a == b. Values of over compareMax elements that are not the same one count as different.
func equal(a, b any) bool {
	left := compareMax
	return equalWithin(a, b, &left)
}

func equalWithin(a, b any, left *int) bool {
	if *left--; *left < 0 {
		return false
	}
	if x, ok := integer(a); ok {
		if y, ok := integer(b); ok {
			return x == y
		}
	}
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	switch x := a.(type) {
	case *List:
		y, ok := b.(*List)
		return ok && (x == y || x.tuple == y.tuple && slices.EqualFunc(x.elems, y.elems,
			func(a, b any) bool { return equalWithin(a, b, left) }))
	case *Map:
		y, ok := b.(*Map)
		return ok && (x == y || equalMaps(x, y, left))
	case Undefined:
		return isUndefined(b)
	}
	return a == b
}

func equalMaps(x, y *Map, left *int) bool {
	if len(x.keys) != len(y.keys) {
		return false
	}
	for _, k := range x.keys {
		if v, ok := y.values[k]; !ok || !equalWithin(x.values[k], v, left) {
			return false
		}
	}
	return true
}

// compare orders two values as Python's < does: numbers, strings and lists among themselves.
func compare(a, b any) (int, error) {
	left := compareMax
	return compareWithin(a, b, &left)
}

func compareWithin(a, b any, left *int) (int, error) {
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			return compareNumbers(a, b, x, y), nil
		}
	}
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), nil
		}
	}
	x, okX := a.(*List)
	y, okY := b.(*List)
	if !okX || !okY || x.tuple != y.tuple {
		return 0, fmt.Errorf("cannot order %s and %s", quoteType(a), quoteType(b))
	}
	for i := range min(len(x.elems), len(y.elems)) {
		if !equalWithin(x.elems[i], y.elems[i], left) {
			return compareWithin(x.elems[i], y.elems[i], left)
		}
	}
	return len(x.elems) - len(y.elems), nil
}

func compareNumbers(a, b any, x, y float64) int {
	if i, ok := integer(a); ok {
		if j, ok := integer(b); ok {
			return int(toInt(i > j) - toInt(i < j))
		}
	}
	if math.IsNaN(x) || math.IsNaN(y) {
		return 1
	}
	return int(toInt(x > y) - toInt(x < y))
}

// items returns what iterating over v gives: elements, characters or keys.
func items(v any) ([]any, error) {
	switch x := v.(type) {
	case *List:
		return x.elems, nil
	case *Map:
		return x.keys, nil
	case string:
		out := make([]any, 0, len(x))
		for _, r := range x {
			out = append(out, string(r))
		}
		return out, nil
	case Undefined:
		return nil, nil
	}
	return nil, fmt.Errorf("%s is not iterable", quoteType(v))
}

// size is Python's len(v).
func size(v any) (int, error) {
	switch x := v.(type) {
	case string:
		return len([]rune(x)), nil
	case *List, *Map, Undefined:
		all, err := items(x)
		return len(all), err
	}
	return 0, fmt.Errorf("%s has no length", quoteType(v))
}

// contains is Python's "v in container".
func contains(container, v any) (bool, error) {
	switch c := container.(type) {
	case string:
		s, ok := v.(string)
		if !ok {
			return false, fmt.Errorf("'in <string>' needs a string, not %s", quoteType(v))
		}
		return strings.Contains(c, s), nil
	case *Map:
		if !hashable(v) {
			return false, fmt.Errorf("%s cannot be a key", quoteType(v))
		}
		_, ok := c.Get(v)
		return ok, nil
	}
	all, err := items(container)
	return slices.ContainsFunc(all, func(x any) bool { return equal(x, v) }), err
}
