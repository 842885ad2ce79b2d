package kernels

import (
	"fmt"
	"maps"
	"slices"
)

// Maker opens a backend; threads is how many of the host's it may use, 0 for all.
type Maker func(threads int) (Backend, error)

var makers = map[string]Maker{}

// RegisterBackend makes a backend known by name. A package does it when it is initialised.
func RegisterBackend(name string, m Maker) struct{} {
	if _, dup := makers[name]; dup {
		panic("kernels: backend " + name + " registered twice")
	}
	makers[name] = m
	return struct{}{}
}

// Backends lists the names of the backends that this build has.
func Backends() []string { return slices.Sorted(maps.Keys(makers)) }

// Open makes a backend by name. Those that hold threads or memory implement io.Closer.
func Open(name string, threads int) (Backend, error) {
	m, ok := makers[name]
	if !ok {
		return nil, fmt.Errorf("device %q: this build has %v", name, Backends())
	}
	return m(threads)
}
