//go:build xpu || cuda

package xpu

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lfactor/lfactor/kernels"
)

// The version of the table that is spoken here.
const (
	Major = 1
	Minor = 0
)

// Variable names the plug-in of device: xpu in the environment.
const Variable = "LFACTOR_XPU"

// table is lfx_api as a plug-in of this major number has it at least.
type table struct {
	size                             uint32
	major, minor                     uint16
	info, open, close, error         uintptr
	alloc, free, hostAlloc, hostFree uintptr
	copy, clear                      uintptr
	record, await, wait, drop        uintptr
	op, run                          uintptr
}

// functions are the table's functions by name.
func (t *table) functions() map[string]uintptr {
	return map[string]uintptr{"info": t.info, "open": t.open, "close": t.close, "error": t.error, "alloc": t.alloc,
		"free": t.free, "host_alloc": t.hostAlloc, "host_free": t.hostFree, "copy": t.copy, "clear": t.clear,
		"record": t.record, "await": t.await, "wait": t.wait, "drop": t.drop, "op": t.op, "run": t.run}
}

// info is lfx_info.
type info struct {
	size, count     uint32
	name            [64]byte
	memory          uint64
	align, reserved uint32
}

// Plugin is a loaded plug-in.
type Plugin struct {
	// Path is the library.
	Path string
	// Devices is how many it has.
	Devices int
	table   table
}

var plugins struct {
	sync.Mutex
	byPath map[string]*Plugin
}

// most is the largest table that is believed: a size beyond it is not a size.
const most = 1 << 16

// Load opens a plug-in, and refuses one whose table cannot be used. A library stays loaded.
func Load(path string) (*Plugin, error) {
	plugins.Lock()
	defer plugins.Unlock()
	if p := plugins.byPath[path]; p != nil {
		return p, nil
	}
	if _, err := os.Stat(path); err != nil { // the loader would look for a name in the system's folders
		return nil, fmt.Errorf("plug-in %s: %w", path, err)
	}
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("plug-in %s: %w", path, err)
	}
	get, err := purego.Dlsym(h, "lfx_get")
	if err != nil {
		return nil, fmt.Errorf("plug-in %s has no function lfx_get: it is not a plug-in of lfactor "+
			"(kernels/xpu/plugin/lfx.h)", path)
	}
	p := &Plugin{Path: path}
	if err := p.read(get); err != nil {
		return nil, fmt.Errorf("plug-in %s: %w", path, err)
	}
	if plugins.byPath == nil {
		plugins.byPath = map[string]*Plugin{}
	}
	plugins.byPath[path] = p
	return p, nil
}

// read takes the table over and holds it to its rules.
func (p *Plugin) read(get uintptr) error {
	r, _, _ := purego.SyscallN(get, Major)
	if r == 0 {
		return fmt.Errorf("it does not speak version %d of the table, as this lfactor does: build it "+
			"with this lfactor's lfx.h", Major)
	}
	t := *(**table)(unsafe.Pointer(&r))
	least := uint32(unsafe.Sizeof(*t))
	switch {
	case t.size < 8 || t.size > most:
		return fmt.Errorf("its table says that it has %d bytes, which no table has", t.size)
	case t.major != Major:
		return fmt.Errorf("its table is of version %d.%d and this lfactor speaks %d.%d: build it with "+
			"this lfactor's lfx.h", t.major, t.minor, Major, Minor)
	case t.size < least:
		return fmt.Errorf("its table has %d bytes and version %d.%d has %d: functions at its end are "+
			"not there", t.size, Major, Minor, least)
	}
	p.table = *t
	for name, f := range p.table.functions() {
		if f == 0 {
			return fmt.Errorf("its table has no function %s", name)
		}
	}
	first, err := p.describe(0)
	if err != nil {
		return err
	}
	p.Devices = int(first.count)
	return nil
}

// describe asks for a device and holds the answer to sense.
func (p *Plugin) describe(index int) (*info, error) {
	i := &info{size: uint32(unsafe.Sizeof(info{}))}
	if err := p.call("info", p.table.info, uintptr(index), uintptr(unsafe.Pointer(i))); err != nil {
		return nil, err
	}
	zero := false
	for _, c := range i.name {
		zero = zero || c == 0
	}
	const devices, memory = 1 << 12, 1 << 50
	switch {
	case i.size != uint32(unsafe.Sizeof(info{})):
		return nil, fmt.Errorf("info changed the size of its answer to %d", i.size)
	case i.count == 0:
		return nil, errors.New("it has no device")
	case i.count > devices:
		return nil, fmt.Errorf("info says that there are %d devices", i.count)
	case i.memory == 0 || i.memory > memory:
		return nil, fmt.Errorf("info says that device %d has %d bytes of memory", index, i.memory)
	case bits.OnesCount32(i.align) != 1 || i.align < 64:
		return nil, fmt.Errorf("info says that memory is aligned to %d bytes, want a power of two of at least 64",
			i.align)
	case !zero:
		return nil, fmt.Errorf("info gives device %d a name without an end", index)
	}
	return i, nil
}

// statuses are lfx_status.
var statuses = []string{"ok", "no memory", "not supported", "a bad argument", "the device is lost"}

// unsupported is LFX_UNSUPPORTED.
const unsupported = 2

// Error is a function of a plug-in that failed.
type Error struct {
	Plugin, Function string
	Status           int
	Text             string
}

// Error names the function and what it said.
func (e *Error) Error() string {
	what := fmt.Sprintf("status %d, which lfx.h does not have", e.Status)
	if e.Status >= 0 && e.Status < len(statuses) {
		what = statuses[e.Status]
	}
	s := fmt.Sprintf("plug-in %s: %s: %s", e.Plugin, e.Function, what)
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// call calls a function of the table that returns a status. What pointers among the arguments point to
// stays where it is until then.
//
//go:uintptrescapes
func (p *Plugin) call(name string, f uintptr, args ...uintptr) error {
	runtime.LockOSThread() // error is about the last failure of the thread that calls it
	defer runtime.UnlockOSThread()
	r, _, _ := purego.SyscallN(f, args...)
	if int32(r) == 0 {
		return nil
	}
	e := &Error{Plugin: p.Path, Function: name, Status: int(int32(r))}
	if t, _, _ := purego.SyscallN(p.table.error); t != 0 {
		e.Text = text(*(**[256]byte)(unsafe.Pointer(&t)))
	}
	return e
}

// text is what stands before the first zero.
func text(b *[256]byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b[:])
}

// operations asks a device which operations it has.
func (p *Plugin) operations(dev uintptr) map[kernels.Op]uint32 {
	m := map[kernels.Op]uint32{}
	for _, s := range kernels.Specs() {
		name, sig := append([]byte(s.Op), 0), append([]byte(s.Sig), 0)
		r, _, _ := purego.SyscallN(p.table.op, dev, uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&sig[0])))
		if n := uint32(r); n != 0 {
			m[s.Op] = n
		}
	}
	return m
}
