//go:build cuda

package cuda

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lfactor/lfactor/kernels"
)

// ManagerVariable names a libnvidia-ml in the environment; "none" leaves it out.
const ManagerVariable = "LFACTOR_LIBNVML"

// Manager is NVIDIA's management library, NVML, which tells of devices' health.
type Manager struct {
	// Path is where it was found.
	Path string

	byUUID, isSlice, whole, errors, clock, clockLimit, reasons, newEvents, register, nextEvent uintptr

	mu      sync.Mutex
	watched map[string]*health // by UUID
}

func (l *Manager) symbols() map[string]*uintptr {
	return map[string]*uintptr{"nvmlDeviceGetHandleByUUID": &l.byUUID, "nvmlDeviceIsMigDeviceHandle": &l.isSlice,
		"nvmlDeviceGetDeviceHandleFromMigDeviceHandle": &l.whole, "nvmlDeviceGetTotalEccErrors": &l.errors,
		"nvmlDeviceGetClockInfo": &l.clock, "nvmlDeviceGetMaxClockInfo": &l.clockLimit,
		"nvmlDeviceGetCurrentClocksEventReasons": &l.reasons, "nvmlEventSetCreate": &l.newEvents,
		"nvmlDeviceRegisterEvents": &l.register, "nvmlEventSetWait_v2": &l.nextEvent}
}

// managerLibrary says where NVML is looked for.
var managerLibrary = lookup{variable: ManagerVariable, names: []string{"libnvidia-ml.so.1"}}

var managers struct {
	sync.Mutex
	byPath map[string]*Manager
}

// FindManager loads the library that LFACTOR_LIBNVML names, or the machine's. Without one, or with "none",
// there is no error unless the one that was named cannot be used.
func FindManager() (*Manager, error) {
	l, _, err := find(managerLibrary, LoadManager)
	return l, err
}

// LoadManager loads the library from a path or by its name. A library stays loaded.
func LoadManager(path string) (*Manager, error) {
	managers.Lock()
	defer managers.Unlock()
	if l := managers.byPath[path]; l != nil {
		return l, nil
	}
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, &missingError{fmt.Errorf("%s: %w", path, err)}
	}
	l := &Manager{Path: path, watched: map[string]*health{}}
	for name, p := range l.symbols() {
		if *p, err = purego.Dlsym(h, name); err != nil {
			return nil, fmt.Errorf("%s has no %s: it is not NVML of a driver of CUDA 13", path, name)
		}
	}
	begin, err := purego.Dlsym(h, "nvmlInit_v2")
	if err != nil {
		return nil, fmt.Errorf("%s has no nvmlInit_v2: it is not NVML", path)
	}
	if code, _, _ := purego.SyscallN(begin); int32(code) != 0 {
		return nil, fmt.Errorf("%s: nvmlInit: status %d", path, int32(code))
	}
	if managers.byPath == nil {
		managers.byPath = map[string]*Manager{}
	}
	managers.byPath[path] = l
	return l, nil
}

// tells calls a function of the library and reports whether it has an answer: devices do not tell all, and
// that they do not is no fault.
//
//go:uintptrescapes
func tells(f uintptr, args ...uintptr) bool {
	code, _, _ := purego.SyscallN(f, args...)
	return int32(code) == 0
}

// Numbers of the library's interface.
const (
	nvmlCorrected, nvmlUncorrected  = 0, 1
	nvmlVolatile                    = 0 // since the driver was loaded
	nvmlMultiprocessors, nvmlMemory = 1, 2
	nvmlXid                         = 8
)

// throttles are the reasons for low clocks that somebody should look at, by NVML's bits. A cap of power is
// none: GPUs meet it whenever they are busy.
var throttles = []struct {
	bit  uint64
	text string
}{{0x08, "the hardware slows it down"}, {0x20, "it is too warm (the driver slows it down)"},
	{0x40, "it is too warm (the hardware slows it down)"}, {0x80, "the supply of power slows it down"}}

// device is the library's handle of a device, and of the GPU that a slice is of; ok is false for one that it
// does not know.
func (l *Manager) device(i Info) (h uintptr, ok bool) {
	id := append([]byte(i.UUID), 0)
	if !tells(l.byUUID, uintptr(unsafe.Pointer(&id[0])), uintptr(unsafe.Pointer(&h))) {
		return 0, false
	}
	var slice uint32
	if tells(l.isSlice, h, uintptr(unsafe.Pointer(&slice))) && slice != 0 {
		ok = tells(l.whole, h, uintptr(unsafe.Pointer(&h)))
		return h, ok
	}
	return h, true
}

// count counts errors of a kind since the driver was loaded.
func (l *Manager) count(h uintptr, kind uintptr) (n uint64, ok bool) {
	ok = tells(l.errors, h, kind, nvmlVolatile, uintptr(unsafe.Pointer(&n)))
	return n, ok
}

// describe says in lines which device it is and how it does.
func (l *Manager) describe(i Info) []string {
	what := "a whole GPU"
	if i.MIG() {
		what = "a MIG slice"
	}
	lines := []string{fmt.Sprintf("device cuda:%d is %s at %s, %s", i.Index, i.UUID, i.Bus, what)}
	if l == nil {
		return lines
	}
	h, ok := l.device(i)
	if !ok {
		return lines
	}
	for _, c := range []struct {
		what string
		kind uintptr
	}{{"clock", nvmlMultiprocessors}, {"memory's clock", nvmlMemory}} {
		var now, most uint32
		if tells(l.clock, h, c.kind, uintptr(unsafe.Pointer(&now))) &&
			tells(l.clockLimit, h, c.kind, uintptr(unsafe.Pointer(&most))) {
			lines[0] += fmt.Sprintf(", %s %d of %d MHz", c.what, now, most)
		}
	}
	some, knows := l.count(h, nvmlCorrected)
	bad, knowsBad := l.count(h, nvmlUncorrected)
	if knows && knowsBad {
		lines[0] += fmt.Sprintf(", ECC errors %d corrected and %d uncorrected", some, bad)
	}
	if bad > 0 {
		lines = append(lines, fmt.Sprintf("%sdevice cuda:%d has had %d uncorrected ECC errors since its "+
			"driver was loaded: reset it (nvidia-smi -r) or replace it", kernels.Warning, i.Index, bad))
	}
	var why uint64
	tells(l.reasons, h, uintptr(unsafe.Pointer(&why)))
	for _, t := range throttles {
		if why&t.bit != 0 {
			lines = append(lines, fmt.Sprintf("%sdevice cuda:%d has a low clock: %s", kernels.Warning, i.Index, t.text))
		}
	}
	return lines
}

// health is what a device's faults are told from. Ranks on one device share it, so that each fault is told once.
type health struct {
	lib    *Manager
	info   Info
	handle uintptr
	events uintptr // 0 where the device has none

	mu  sync.Mutex
	bad uint64 // uncorrected errors that were seen
}

// watch begins to look at a device; nil where nothing tells of it.
func (l *Manager) watch(i Info) *health {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.watched[i.UUID]; w != nil {
		return w
	}
	h, ok := l.device(i)
	if !ok {
		return nil
	}
	w := &health{lib: l, info: i, handle: h}
	w.bad, _ = l.count(h, nvmlUncorrected) // a device without the counter has 0 for ever
	if tells(l.newEvents, uintptr(unsafe.Pointer(&w.events))) && !tells(l.register, h, nvmlXid, w.events) {
		w.events = 0
	}
	l.watched[i.UUID] = w
	return w
}

// nvmlEvent is nvmlEventData_t.
type nvmlEvent struct {
	device       uintptr
	what, number uint64
	gpu, compute uint32
}

// xidsMost bounds how many events one look tells; others wait for the next.
const xidsMost = 8

// news is what has come up since the last look.
func (w *health) news() (all []string) {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	name := fmt.Sprintf("cuda:%d (%s, %s)", w.info.Index, w.info.UUID, w.info.Bus)
	if n, ok := w.lib.count(w.handle, nvmlUncorrected); ok {
		if n > w.bad {
			all = append(all, fmt.Sprintf("%s has %d uncorrected ECC errors more, %d since its driver was "+
				"loaded; what it computed may be wrong", name, n-w.bad, n))
		}
		w.bad = n
	}
	var xids []string
	for range xidsMost {
		var e nvmlEvent
		if w.events == 0 || !tells(w.lib.nextEvent, w.events, uintptr(unsafe.Pointer(&e)), 0) {
			break
		}
		xids = append(xids, fmt.Sprint(e.number))
	}
	if len(xids) > 0 {
		all = append(all, fmt.Sprintf("%s: the driver reports Xid %s; docs.nvidia.com/deploy/xid-errors has "+
			"what they mean", name, strings.Join(xids, ", ")))
	}
	return all
}

// describeManager says in a line what tells of devices' health.
func describeManager() string {
	return describeLibrary(managerLibrary, LoadManager, "devices' health is not known",
		func(l *Manager) string { return "devices' health by NVML, " + l.Path })
}
