package kernels

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// CPU is the device of every build, and the default.
const CPU = "cpu"

// Auto is an accelerator where this build has one and the machine too, and the processor elsewhere.
const Auto = "auto"

// Options say how a backend is opened.
type Options struct {
	Threads int    // of the host's, 0 for all
	Rank    int    // of the run: devices that were not named are taken in turn
	Which   string // what stands behind the colon of the device's name, as 1 in cuda:1
	Dir     string // of the run, where a device keeps what it has chosen; "" keeps nothing
	Strict  bool   // operations that the device does not have are an error, and not run on the processor
}

// Maker is a kind of backend.
type Maker struct {
	// Open opens one.
	Open func(o Options) (Backend, error)
	// Absent says why this machine has none; nil for the processor.
	Absent func() error
	// Describe lists what there is of it on this machine, a line each; nil for the processor.
	Describe func() []string
}

var makers = map[string]Maker{}

// RegisterBackend makes a backend known by name. A package does it when it is initialised.
func RegisterBackend(name string, m Maker) struct{} {
	if _, dup := makers[name]; dup {
		panic("kernels: backend " + name + " registered twice")
	}
	makers[name] = m
	return struct{}{}
}

// Warning begins a line of Describe that is one.
const Warning = "! "

// Ailing is a backend whose device has faults that no call of it fails by.
type Ailing interface {
	// Ails tells what has come up since it was last asked, or since the device was opened: a whole text
	// each. Any goroutine may call it, also when the backend is closed.
	Ails() []string
}

// Describe lists the devices of this machine beside the processor, a line each, and the kinds that other builds have.
func Describe() (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(builtWith)) {
		m, ok := makers[name]
		if !ok {
			lines = append(lines, fmt.Sprintf("%s: not in this program; go build -tags %s has it", name,
				builtWith[name]))
			continue
		}
		for _, l := range m.Describe() {
			l, warns := strings.CutPrefix(l, Warning)
			if l = name + ": " + l; warns {
				l = Warning + l
			}
			lines = append(lines, l)
		}
	}
	return lines
}

// Backends lists the names of the backends that this build has.
func Backends() []string { return slices.Sorted(maps.Keys(makers)) }

// rated gives what a device of a kind can do, by what stands behind the colon of its name.
var rated = map[string]func(which string) Peaks{}

// RegisterRates makes known what devices of a backend can do. A package does it when it is initialised.
func RegisterRates(name string, rates func(which string) Peaks) struct{} {
	rated[name] = rates
	return struct{}{}
}

// DeviceRates is what a device beside the processor can do by its maker, not measured: 0 in each rate that is not
// known, and all are 0 for the processor, which is probed.
func DeviceRates(device string) Peaks {
	if device == Auto {
		device = automatic()
	}
	name, which, _ := strings.Cut(device, ":")
	if rates := rated[name]; rates != nil {
		return rates(which)
	}
	return Peaks{}
}

// OnProcessor tells whether a device's name means the processor of this machine.
func OnProcessor(device string) bool {
	return device == "" || device == CPU || device == Auto && automatic() == CPU
}

// builtWith are the tags of the builds that have a device.
var builtWith = map[string]string{"cuda": "cuda", "xpu": "xpu"}

// Open makes a backend by the name of its device: cpu, cuda, cuda:1, auto. Those that hold threads or
// memory implement io.Closer.
func Open(device string, o Options) (Backend, error) {
	if device == Auto {
		device = automatic()
	}
	name, which, _ := strings.Cut(device, ":")
	m, ok := makers[name]
	switch {
	case ok:
		o.Which = which
		return m.Open(o)
	case builtWith[name] != "":
		return nil, fmt.Errorf("device %q: this program was built without it and has %v; one built with go build "+
			"-tags %s has it", device, Backends(), builtWith[name])
	}
	return nil, fmt.Errorf("device %q: this build has %v", device, Backends())
}

// automatic is the first accelerator that this machine has, or the processor.
func automatic() string {
	for _, name := range Backends() {
		if absent := makers[name].Absent; absent != nil && absent() == nil {
			return name
		}
	}
	return CPU
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
	// products of bfloat16 in registers on one thread, flops a second; 0 without instructions for them
	Tiles  float64
	Memory float64 // bytes read and written a second by all threads copying and scaling 32 MiB
	// TeamMultiplyAdd and TeamTiles are all threads at once: less than threads times as much where they
	// share a core or a clock.
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
	b, err := Open(CPU, Options{Threads: threads})
	if err != nil {
		panic(err) // every program has it
	}
	return b.(Prober)
}
