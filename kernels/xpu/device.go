//go:build xpu || cuda

package xpu

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// device is one device of a plug-in as a rank has it.
type device struct {
	p     *Plugin
	index int
	name  string
	room  int64
	dev   uintptr
	ops   map[kernels.Op]uint32
}

var (
	_ accel.Driver  = (*device)(nil)
	_ accel.Program = (*device)(nil)
)

// New opens a device of a plug-in for one rank.
func (p *Plugin) New(index int, absent accel.Absent) (*accel.Device, error) {
	d, err := p.open(index)
	if err != nil {
		return nil, err
	}
	return accel.New(d, d, absent), nil
}

func (p *Plugin) open(index int) (*device, error) {
	if index < 0 || index >= p.Devices {
		return nil, fmt.Errorf("plug-in %s has %d devices, and no device %d", p.Path, p.Devices, index)
	}
	i, err := p.describe(index)
	if err != nil {
		return nil, fmt.Errorf("plug-in %s: %w", p.Path, err)
	}
	d := &device{p: p, index: index, room: int64(i.memory), name: text((*[256]byte)(append(i.name[:], make([]byte, 192)...)))}
	if err := p.call("open", p.table.open, uintptr(index), uintptr(unsafe.Pointer(&d.dev))); err != nil {
		return nil, err
	}
	if d.dev == 0 {
		return nil, fmt.Errorf("plug-in %s: open gave no device", p.Path)
	}
	if d.ops = p.operations(d.dev); len(d.ops) == 0 {
		d.Close()
		return nil,
			fmt.Errorf("plug-in %s has none of this lfactor's operations: it was written for other contracts", p.Path)
	}
	return d, nil
}

// Space implements accel.Driver.
func (d *device) Space() string { return "memory of " + d.p.Path }

// Room implements kernels.Sized.
func (d *device) Room() int64 { return d.room }

// Name implements accel.Driver.
func (d *device) Name() string {
	return fmt.Sprintf("xpu:%s, device %d (%s)", d.p.Path, d.index, d.name)
}

// Alloc implements accel.Driver.
func (d *device) Alloc(n int) (addr uint64, err error) {
	err = d.p.call("alloc", d.p.table.alloc, d.dev, uintptr(n), uintptr(unsafe.Pointer(&addr)))
	if err == nil && (addr == 0 || addr%64 != 0) {
		err = fmt.Errorf("plug-in %s: alloc gave the address %#x, want a multiple of 64", d.p.Path, addr)
	}
	return addr, err
}

// Free implements accel.Driver.
func (d *device) Free(addr uint64) { _ = d.p.call("free", d.p.table.free, d.dev, uintptr(addr)) }

// Pinned implements accel.Driver.
func (d *device) Pinned(n int) ([]byte, error) {
	var p unsafe.Pointer
	if err := d.p.call("host_alloc", d.p.table.hostAlloc, d.dev, uintptr(n), uintptr(unsafe.Pointer(&p))); err != nil {
		return nil, err
	}
	if p == nil {
		return nil, fmt.Errorf("plug-in %s: host_alloc gave no memory", d.p.Path)
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// Unpin implements accel.Driver.
func (d *device) Unpin(b []byte) {
	// a device that failed says so elsewhere
	_ = d.p.call("host_free", d.p.table.hostFree, d.dev, uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// Directions of copies: lfx_direction.
const (
	toDevice = iota
	toHost
	onDevice
)

// Upload implements accel.Driver.
func (d *device) Upload(to uint64, from []byte) error {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(from)))
	return d.p.call("copy", d.p.table.copy, d.dev, uintptr(to), at, uintptr(len(from)), toDevice)
}

// Download implements accel.Driver.
func (d *device) Download(to []byte, from uint64) error {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(to)))
	return d.p.call("copy", d.p.table.copy, d.dev, at, uintptr(from), uintptr(len(to)), toHost)
}

// Copy implements accel.Driver.
func (d *device) Copy(to, from uint64, n int) error {
	return d.p.call("copy", d.p.table.copy, d.dev, uintptr(to), uintptr(from), uintptr(n), onDevice)
}

// Clear implements accel.Driver.
func (d *device) Clear(at uint64, v byte, n int) error {
	return d.p.call("clear", d.p.table.clear, d.dev, uintptr(at), uintptr(v), uintptr(n))
}

// Mark implements accel.Driver.
func (d *device) Mark() (accel.Mark, error) {
	var e uintptr
	err := d.p.call("record", d.p.table.record, d.dev, uintptr(unsafe.Pointer(&e)))
	if err == nil && e == 0 {
		err = fmt.Errorf("plug-in %s: record gave no event", d.p.Path)
	}
	return accel.Mark(e), err
}

// Await implements accel.Driver.
func (d *device) Await(m accel.Mark) error {
	return d.p.call("await", d.p.table.await, d.dev, uintptr(m))
}

// Wait implements accel.Driver.
func (d *device) Wait(m accel.Mark) error { return d.p.call("wait", d.p.table.wait, uintptr(m)) }

// Drop implements accel.Driver.
func (d *device) Drop(m accel.Mark) { d.p.void(d.p.table.drop, uintptr(m)) }

// Close implements accel.Driver.
func (d *device) Close() { d.p.void(d.p.table.close, d.dev) }

// operand and request are lfx_tensor and lfx_call.
type operand struct {
	size, dtype, rank, reserved uint32
	dim                         [8]int64
	mem                         uint64
}

type request struct {
	size, op, nin, nout uint32
	in, out             unsafe.Pointer
	i                   [4]int64
	f                   [2]float64
}

// Issue implements accel.Program.
func (d *device) Issue(q *accel.Queue, c *kernels.Call) (bool, error) {
	n := d.ops[c.Op]
	if n == 0 || (c.Op == kernels.Linear || c.Op == kernels.GroupedLinear) && kernels.Parts(c) > 1 ||
		c.Op == kernels.LogitsNLL && c.Attr.I[1] > 1 {
		return false, nil // plug-ins that were written before these had parts would take one whole
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	r := &request{size: uint32(unsafe.Sizeof(request{})), op: n, nin: uint32(len(c.In)),
		nout: uint32(len(c.Out)), f: c.Attr.F}
	for i, v := range c.Attr.I {
		r.i[i] = int64(v)
	}
	list := func(l []*tensor.Tensor) (unsafe.Pointer, bool) {
		at := make([]unsafe.Pointer, len(l)+1)
		for i, t := range l {
			switch {
			case t == nil:
				continue
			case len(t.Shape) > 8:
				return nil, false
			}
			o := &operand{size: uint32(unsafe.Sizeof(operand{})), dtype: uint32(t.DType),
				rank: uint32(len(t.Shape)), mem: q.Addr(t)}
			for j, s := range t.Shape {
				o.dim[j] = int64(s)
			}
			pin.Pin(o)
			at[i] = unsafe.Pointer(o)
		}
		pin.Pin(&at[0])
		return unsafe.Pointer(&at[0]), true
	}
	var ok, fits bool
	r.in, ok = list(c.In)
	if r.out, fits = list(c.Out); !ok || !fits {
		return false, nil
	}
	if err := q.Failed(); err != nil {
		return false, err
	}
	err := d.p.call("run", d.p.table.run, d.dev, uintptr(unsafe.Pointer(r)))
	var e *Error
	if errors.As(err, &e) && e.Status == unsupported {
		return false, nil
	}
	return err == nil, err
}
