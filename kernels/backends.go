package kernels

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// CPU is the device of every build, and the default.
const CPU = "cpu"

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

// Close gives back the threads and the memory of a backend that holds any. What they computed stays.
func Close(b Backend) {
	if c, ok := b.(io.Closer); ok {
		_ = c.Close() // the results stand, and nobody can mend what cannot be given back
	}
}

// Peaks are rates of a device measured with nothing but the instructions in question: what the rates of operations are
// compared with. They drift by some 10 % with the clock and with neighbours, so measure both in one run.
type Peaks struct {
	MultiplyAdd float64 // float32 multiply-adds in registers on one thread, flops a second
	Tiles       float64 // products of bfloat16 in registers on one thread, flops a second; 0 without instructions for them
	Memory      float64 // bytes read and written a second by all threads copying and scaling 32 MiB
	// TeamMultiplyAdd and TeamTiles are all threads at once: less than threads times as much where they share a core or a clock.
	TeamMultiplyAdd, TeamTiles float64
}

// Prober is a backend that can measure its device.
type Prober interface {
	Backend
	// Peaks measures for about 100 ms.
	Peaks() Peaks
}

// OpenProber opens this machine's processor, to measure it.
func OpenProber(threads int) Prober {
	b, err := Open(CPU, threads)
	if err != nil {
		panic(err) // every program has it
	}
	return b.(Prober)
}
