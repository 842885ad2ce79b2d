package family

import "maps"

// More is what tasks and modalities bring of a microbatch beside tokens and images. Each has a [Key] of its own, which says
// the type of what it finds there, so that a new one edits none of the others. The zero value has nothing.
type More struct{ of map[any]any }

// Key is where a microbatch has a value of type T.
type Key[T any] struct{ name *string }

// NewKey makes a key, whose name is for people.
func NewKey[T any](name string) Key[T] { return Key[T]{&name} }

// Of is the value of a key, and T's zero where there is none.
func (k Key[T]) Of(m More) T {
	v, _ := m.of[k].(T)
	return v
}

// With has a value too.
func (k Key[T]) With(m More, v T) More {
	of := maps.Clone(m.of)
	if of == nil {
		of = map[any]any{}
	}
	of[k] = v
	return More{of}
}
