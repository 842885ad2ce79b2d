//go:build cu && cuda

// Package gorgonia drives CUDA devices with gorgonia.org/cu, a binding by cgo, behind the interface of the
// project's own binding. What cu lacks, pinned memory, comes from the other. It is a module of its own, so
// that nobody else needs cu's dependencies; its import ends the process where there is no device.
package gorgonia

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/lfactor/lfactor/kernels/accel"
	"github.com/lfactor/lfactor/kernels/cuda"
	"github.com/lfactor/lfactor/kernels/cuda/source"
)

// driver is a stream of a device. Calls it does not have are those of the other binding.
type driver struct {
	accel.Driver // of pinned memory, and of the names
	ctx          cu.CUContext
	stream       cu.Stream
	module       cu.Module
	mu           sync.Mutex
	functions    map[string]cu.Function
}

// marks are the events of all devices, which may wait for each other's.
var marks struct {
	sync.Mutex
	events map[accel.Mark]cu.Event
	next   accel.Mark
}

var _ cuda.Calls = (*driver)(nil)

// New opens a device whose calls of the driver go through cu.
func New(l *cuda.Library, index int, absent accel.Absent) (*accel.Device, error) {
	return l.NewOn(index, absent, func(own accel.Driver) (cuda.Calls, error) { return open(own, index) })
}

func open(own accel.Driver, index int) (*driver, error) {
	dev, err := cu.GetDevice(index)
	if err != nil {
		return nil, fmt.Errorf("cuda:%d: %w", index, err)
	}
	d := &driver{Driver: own, functions: map[string]cu.Function{}}
	if d.ctx, err = dev.RetainPrimaryCtx(); err != nil {
		return nil, fmt.Errorf("cuda:%d: %w", index, err)
	}
	return d, d.do(func() (err error) {
		if d.module, err = cu.LoadData(source.Image); err == nil {
			d.stream, err = cu.MakeStream(cu.NonBlocking)
		}
		return err
	})
}

// do calls f with the device's context, on one thread.
func (d *driver) do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.ctx); err != nil {
		return err
	}
	return f()
}

// Name implements accel.Driver.
func (d *driver) Name() string { return d.Driver.Name() + " by gorgonia.org/cu" }

// Alloc implements accel.Driver.
func (d *driver) Alloc(n int) (addr uint64, err error) {
	err = d.do(func() error {
		p, err := cu.MemAlloc(int64(n))
		addr = uint64(p)
		return err
	})
	return addr, err
}

// Free implements accel.Driver.
func (d *driver) Free(addr uint64) {
	_ = d.do(func() error { return cu.MemFree(cu.DevicePtr(addr)) }) // fails only where the device is lost
}

// Upload implements accel.Driver.
func (d *driver) Upload(to uint64, from []byte) error {
	return d.do(func() error {
		return cu.MemcpyHtoDAsync(cu.DevicePtr(to), unsafe.Pointer(unsafe.SliceData(from)), int64(len(from)), d.stream)
	})
}

// Download implements accel.Driver.
func (d *driver) Download(to []byte, from uint64) error {
	return d.do(func() error {
		return cu.MemcpyDtoHAsync(unsafe.Pointer(unsafe.SliceData(to)), cu.DevicePtr(from), int64(len(to)), d.stream)
	})
}

// Copy implements accel.Driver.
func (d *driver) Copy(to, from uint64, n int) error {
	return d.do(func() error {
		return cu.MemcpyAsync(cu.DevicePtr(to), cu.DevicePtr(from), int64(n), d.stream)
	})
}

// Clear implements accel.Driver.
func (d *driver) Clear(at uint64, v byte, n int) error {
	return d.do(func() error { return cu.MemsetD8Async(cu.DevicePtr(at), v, int64(n), d.stream) })
}

// Mark implements accel.Driver.
func (d *driver) Mark() (m accel.Mark, err error) {
	err = d.do(func() error {
		e, err := cu.MakeEvent(cu.DisableTiming | cu.BlockingSyncEvent)
		if err != nil {
			return err
		}
		marks.Lock()
		if marks.events == nil {
			marks.events = map[accel.Mark]cu.Event{}
		}
		marks.next++
		m = marks.next
		marks.events[m] = e
		marks.Unlock()
		return e.Record(d.stream)
	})
	return m, err
}

func eventOf(m accel.Mark) cu.Event {
	marks.Lock()
	defer marks.Unlock()
	return marks.events[m]
}

// Await implements accel.Driver.
func (d *driver) Await(m accel.Mark) error {
	return d.do(func() error { return d.stream.Wait(eventOf(m), 0) })
}

// Wait implements accel.Driver.
func (d *driver) Wait(m accel.Mark) error {
	return d.do(func() error { return eventOf(m).Synchronize() })
}

// Drop implements accel.Driver.
func (d *driver) Drop(m accel.Mark) {
	e := eventOf(m)
	_ = d.do(func() error { return cu.DestroyEvent(&e) })
	marks.Lock()
	delete(marks.events, m)
	marks.Unlock()
}

// Close implements accel.Driver.
func (d *driver) Close() {
	_ = d.do(d.stream.Destroy)
	d.Driver.Close()
}

// Launch implements cuda.Calls. cu copies parameters of 8 bytes, one behind the other: a struct of words is
// as many parameters, of which the driver sees the first.
func (d *driver) Launch(name string, blocks [3]int, threads, shared int, words []uint64) error {
	return d.do(func() error {
		d.mu.Lock()
		f, ok := d.functions[name]
		if !ok {
			var err error
			if f, err = d.module.Function(name); err != nil {
				d.mu.Unlock()
				return fmt.Errorf("%s: %w", name, err)
			}
			d.functions[name] = f
		}
		d.mu.Unlock()
		params := make([]unsafe.Pointer, len(words))
		for i := range words {
			params[i] = unsafe.Pointer(&words[i])
		}
		return f.Launch(blocks[0], blocks[1], blocks[2], threads, 1, 1, shared, d.stream, params)
	})
}
