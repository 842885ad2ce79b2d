//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"os"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var _ = kernels.RegisterBackend("cuda", kernels.Maker{Open: open, Absent: absent, Describe: describe})

// open opens a device for a rank: the named one, or of all devices the one whose turn it is.
func open(o kernels.Options) (kernels.Backend, error) {
	l, err := Load()
	if err != nil {
		return nil, err
	}
	n, err := l.Count()
	if err != nil {
		return nil, err
	}
	index := o.Rank % max(n, 1)
	if o.Which != "" {
		if index, err = l.find(o.Which, n); err != nil {
			return nil, err
		}
	}
	products, err := FindProducts()
	if err != nil {
		return nil, err
	}
	attentions, err := FindAttentions()
	if err != nil {
		return nil, err
	}
	exchange, err := FindExchange()
	if err != nil {
		return nil, err
	}
	manager, err := FindManager()
	if err != nil {
		return nil, err
	}
	timed, err := timedProposals()
	if err != nil {
		return nil, err
	}
	ranges, err := FindRanges()
	if err != nil {
		return nil, err
	}
	return l.New(index, Settings{Manager: manager, Ranges: ranges, Timed: timed, Absent: onProcessor(o.Strict),
		Products: products, Attentions: attentions, Exchange: exchange, Dir: o.Dir})
}

// absent says why no device can be used here.
func absent() error {
	l, err := Load()
	if err != nil {
		return err
	}
	switch n, err := l.Count(); {
	case err != nil:
		return err
	case n == 0:
		return errors.New("the driver sees no device")
	}
	return nil
}

// describe lists the driver, its devices, and for which of them the kernels lie ready.
func describe() []string {
	l, err := Load()
	if err != nil {
		return []string{err.Error()}
	}
	n, err := l.Count()
	if err != nil {
		return []string{err.Error()}
	}
	lines := []string{fmt.Sprintf("driver %s speaks CUDA %d.%d and has %d devices", l.Path,
		l.Version/1000, l.Version%1000/10, n)}
	lines = append(lines, describeProducts(), describeAttentions(), describeExchange(), describeManager(), describeRanges())
	manager, _ := FindManager() // why it is not there was said
	for i := range n {
		d, err := l.Describe(i)
		if err != nil {
			lines = append(lines, fmt.Sprintf("device cuda:%d: %v", i, err))
			continue
		}
		lines = append(lines, fmt.Sprintf("device cuda:%d (%s) has %s, %d multiprocessors, capability %d.%d: %s", i,
			d.Name, tensor.Bytes(d.Memory), d.Multiprocessors, d.Major, d.Minor, d.kernels()))
		lines = append(lines, manager.describe(d)...)
	}
	return lines
}

// kernels says what of the image a device runs.
func (i Info) kernels() string {
	switch {
	case i.Major < 8:
		return "too old for the kernels, which want 8.0"
	case i.Major == 9 && i.Minor == 0:
		return "kernels for sm_90a"
	case i.Major == 8:
		return "kernels for sm_80"
	}
	return "the driver compiles the kernels when they are loaded"
}

// Settings are how a device is used.
type Settings struct {
	// Absent says what becomes of operations that the device does not have.
	Absent accel.Absent
	// Products does them; nil leaves them to the project's kernel.
	Products *Products
	// Timed is how many of its proposals for a shape are timed, up to 8; 0 and 1 take the first untimed.
	Timed int
	// Attentions does attention where it can; nil leaves all to the project's kernel.
	Attentions *Attentions
	// Exchange joins devices of several processes; nil lets tensors go through the host.
	Exchange *Exchange
	// Manager tells of the device's health; nil tells nothing.
	Manager *Manager
	// Ranges are told of operations; nil tells nobody.
	Ranges *Ranges
	// Dir is where the algorithms that libraries chose are kept; "" keeps none.
	Dir string
}

// New opens a device of a driver for one rank: a stream of its own, with kernels and context shared by
// all ranks on the device.
func (l *Library) New(index int, s Settings) (*accel.Device, error) {
	d, err := l.open(index)
	if err != nil {
		return nil, err
	}
	if s.Products != nil {
		chosen, err := OpenChosen(s.Dir, chosenProducts, validAlgorithm)
		if err != nil {
			return nil, err
		}
		if d.engine, err = d.newEngine(s.Products, chosen, s.Timed); err != nil {
			return nil, fmt.Errorf("%s on cuda:%d (%s): %w; %s=none does without it", s.Products.Path, index,
				d.info.Name, err, ProductsVariable)
		}
	}
	if s.Attentions != nil {
		chosen, err := OpenChosen(s.Dir, chosenAttentions, validEngine)
		if err != nil {
			return nil, err
		}
		if d.attends, err = d.newAttender(s.Attentions, chosen); err != nil {
			return nil, fmt.Errorf("%s on cuda:%d (%s): %w; %s=none does without it", s.Attentions.Path, index,
				d.info.Name, err, AttentionVariable)
		}
	}
	d.exchange, d.health, d.ranges = s.Exchange, s.Manager.watch(d.info), s.Ranges
	return accel.New(d, d, s.Absent), nil
}

// Calls is a driver of a device by another binding to NVIDIA's library.
type Calls interface {
	accel.Driver
	// Launch starts a kernel of source.Image, whose parameter is a struct of these words, on blocks along
	// three axes of so many threads and bytes of shared memory.
	Launch(name string, blocks [3]int, threads, shared int, words []uint64) error
}

// NewOn opens a device whose calls of the driver go through another binding; pinned memory, which bindings
// lack, comes from this one: first is given the driver that makes it.
func (l *Library) NewOn(index int, absent accel.Absent,
	first func(own accel.Driver) (Calls, error)) (*accel.Device, error) {
	d, err := l.open(index)
	if err != nil {
		return nil, err
	}
	if d.calls, err = first(d); err != nil {
		d.Close()
		return nil, err
	}
	return accel.New(d.calls, d, absent), nil
}

// onProcessor runs on the processor what a device does not have.
func onProcessor(strict bool) accel.Absent {
	return accel.Absent{Strict: strict, Tell: os.Stderr, Open: func() (kernels.Backend, error) {
		return kernels.Open(kernels.CPU, kernels.Options{})
	}}
}
