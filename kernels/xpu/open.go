//go:build xpu || cuda

package xpu

import (
	"fmt"
	"os"

	"github.com/ebitengine/purego"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
)

var _ = kernels.RegisterBackend("xpu", kernels.Maker{Open: open, Absent: absent, Describe: describe})

// void calls a function of the table that returns nothing.
func (p *Plugin) void(f uintptr, arg uintptr) { purego.SyscallN(f, arg) }

// named is the plug-in of a path, or of the environment.
func named(path string) (*Plugin, error) {
	if path == "" {
		path = os.Getenv(Variable)
	}
	if path == "" {
		return nil, fmt.Errorf("device xpu: no plug-in is named; set device: xpu:PATH, or %s=PATH", Variable)
	}
	return Load(path)
}

// open opens the device whose turn it is for a rank.
func open(o kernels.Options) (kernels.Backend, error) {
	p, err := named(o.Which)
	if err != nil {
		return nil, err
	}
	return p.New(o.Rank%p.Devices, accel.Absent{Strict: o.Strict, Tell: os.Stderr,
		Open: func() (kernels.Backend, error) {
			return kernels.Open(kernels.CPU, kernels.Options{Threads: o.Threads})
		}})
}

// absent says why device: auto has no plug-in here.
func absent() error {
	_, err := named("")
	return err
}

// describe lists the plug-in of the environment and its devices.
func describe() []string {
	p, err := named("")
	if err != nil {
		return []string{err.Error()}
	}
	lines := []string{fmt.Sprintf("plug-in %s has %d devices", p.Path, p.Devices)}
	for i := range p.Devices {
		d, err := p.open(i)
		if err != nil {
			lines = append(lines, err.Error())
			continue
		}
		lines = append(lines, fmt.Sprintf("device %s has %d of %d operations; the others run on the processor",
			d.Name(), len(d.ops), len(kernels.Specs())))
		d.Close()
	}
	return lines
}
