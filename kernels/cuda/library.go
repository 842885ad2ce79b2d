//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Library is a loaded CUDA driver.
//
//lfvet:fields one field a function of NVIDIA's driver
type Library struct {
	// Path is where it was found.
	Path string
	// Version is the CUDA version that the driver speaks, 1000·major + 10·minor.
	Version int
	handle  uintptr

	mu       sync.Mutex
	contexts map[int]uintptr // primary, by device
	modules  map[int]uintptr // our kernels, by device

	deviceCount, deviceGet, deviceName, deviceAttribute, deviceTotal, deviceUUID, deviceBus, reaches, retain, setCurrent, peer,
	memInfo, alloc, free, pinned, unpin, newStream, endStream, syncStream, newEvent, endEvent, record,
	syncEvent, waitEvent, queryEvent, elapsed,
	upload, download, move, clear, load, function, funcAsk, funcAttribute, launch, errorName uintptr
	parameters uintptr // 0 before CUDA 12.4
}

// symbols are the driver's functions that Library calls; the endings are of its stable interface since CUDA 11.
func (l *Library) symbols() map[string]*uintptr {
	return map[string]*uintptr{
		"cuDeviceGetCount": &l.deviceCount, "cuDeviceGet": &l.deviceGet, "cuDeviceGetName": &l.deviceName,
		"cuDeviceGetAttribute": &l.deviceAttribute,
		"cuDeviceGetUuid_v2":   &l.deviceUUID, "cuDeviceGetPCIBusId": &l.deviceBus,
		"cuDeviceTotalMem_v2": &l.deviceTotal, "cuDevicePrimaryCtxRetain": &l.retain,
		"cuDeviceCanAccessPeer": &l.reaches, "cuCtxEnablePeerAccess": &l.peer,
		"cuCtxSetCurrent": &l.setCurrent, "cuMemGetInfo_v2": &l.memInfo,
		"cuMemAlloc_v2": &l.alloc, "cuMemFree_v2": &l.free, "cuMemHostAlloc": &l.pinned,
		"cuMemFreeHost":  &l.unpin,
		"cuStreamCreate": &l.newStream, "cuStreamDestroy_v2": &l.endStream,
		"cuStreamSynchronize": &l.syncStream,
		"cuEventCreate":       &l.newEvent, "cuEventDestroy_v2": &l.endEvent, "cuEventRecord": &l.record,
		"cuEventSynchronize": &l.syncEvent, "cuEventQuery": &l.queryEvent,
		"cuEventElapsedTime_v2": &l.elapsed, "cuStreamWaitEvent": &l.waitEvent,
		"cuMemcpyHtoDAsync_v2": &l.upload,
		"cuMemcpyDtoHAsync_v2": &l.download, "cuMemcpyAsync": &l.move,
		"cuMemsetD8Async": &l.clear, "cuModuleLoadData": &l.load, "cuModuleGetFunction": &l.function,
		"cuFuncGetAttribute": &l.funcAsk, "cuFuncSetAttribute": &l.funcAttribute,
		"cuLaunchKernel": &l.launch, "cuGetErrorName": &l.errorName,
	}
}

// oldest is the driver of CUDA 13.0 (580): the first that loads what nvcc 13.0 made.
const oldest = 13000

// LibraryVariable names a libcuda in the environment; it goes before all other places.
const LibraryVariable = "LFACTOR_LIBCUDA"

// driverFolders are where NVIDIA's driver puts its libraries, beside the system's loader.
var driverFolders = []string{"/usr/local/nvidia/lib64", "/usr/local/cuda/compat",
	"/usr/lib/x86_64-linux-gnu", "/usr/lib/wsl/lib"}

// places are where the driver's library is looked for, in order.
func places() []string {
	if p := os.Getenv(LibraryVariable); p != "" {
		return []string{p}
	}
	l := []string{"libcuda.so.1"}
	for _, dir := range driverFolders {
		l = append(l, filepath.Join(dir, "libcuda.so.1"))
	}
	return l
}

var libraries struct {
	sync.Mutex
	byPath map[string]*Library
}

// Load finds and loads the driver: the one that LFACTOR_LIBCUDA names, or the machine's.
func Load() (*Library, error) {
	var tried []string
	for _, p := range places() {
		l, err := LoadFrom(p)
		if err == nil {
			return l, nil
		}
		var missing *missingError
		if !errors.As(err, &missing) {
			return nil, err
		}
		tried = append(tried, p)
	}
	return nil, fmt.Errorf("no CUDA driver: libcuda.so.1 was looked for as %s; install NVIDIA's driver, or name "+
		"the library in %s, or set device: cpu", strings.Join(tried, ", "), LibraryVariable)
}

// missingError is a library that cannot be loaded at all.
type missingError struct{ err error }

func (e *missingError) Error() string { return e.err.Error() }

// LoadFrom loads the driver's library from a path or by its name. A library stays loaded.
func LoadFrom(path string) (*Library, error) {
	libraries.Lock()
	defer libraries.Unlock()
	if l := libraries.byPath[path]; l != nil {
		return l, nil
	}
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, &missingError{fmt.Errorf("%s: %w", path, err)}
	}
	l := &Library{Path: path, handle: h, contexts: map[int]uintptr{}, modules: map[int]uintptr{}}
	for name, p := range l.symbols() {
		if *p, err = purego.Dlsym(h, name); err != nil {
			return nil, fmt.Errorf("%s has no %s: it is not a CUDA driver of version 13 or later; "+
				"update NVIDIA's driver", path, name)
		}
	}
	l.parameters, _ = purego.Dlsym(h, "cuFuncGetParamInfo") // older drivers have none
	if err := l.start(); err != nil {
		return nil, err
	}
	if libraries.byPath == nil {
		libraries.byPath = map[string]*Library{}
	}
	libraries.byPath[path] = l
	return l, nil
}

func (l *Library) start() error {
	version, err := purego.Dlsym(l.handle, "cuDriverGetVersion")
	if err != nil {
		return fmt.Errorf("%s has no cuDriverGetVersion: it is not a CUDA driver", l.Path)
	}
	var v int32
	if err := l.call("cuDriverGetVersion", version, uintptr(unsafe.Pointer(&v))); err != nil {
		return err
	}
	if l.Version = int(v); l.Version < oldest {
		return fmt.Errorf("%s speaks CUDA %d.%d, and %d.0 is needed: update NVIDIA's driver", l.Path,
			v/1000, v%1000/10, oldest/1000)
	}
	begin, err := purego.Dlsym(l.handle, "cuInit")
	if err != nil {
		return fmt.Errorf("%s has no cuInit: it is not a CUDA driver", l.Path)
	}
	return l.call("cuInit", begin, 0)
}

// Error is a call of the driver that failed.
type Error struct {
	Call string
	Code int
	Name string
}

const notReady = 600 // what an event says that is still to come

// remedies are what to do about codes that users meet.
var remedies = map[int]string{
	2:   "the device's memory is full; another process may hold it (nvidia-smi lists them)",
	100: "the driver sees no device; is one there, and does CUDA_VISIBLE_DEVICES name it?",
	101: "there is no device of that number",
	222: "the driver is older than the kernels' code for devices it does not know; update NVIDIA's driver",
	209: "there is no code for this device: sm_80 and later are supported",
	214: "an uncorrectable error of the device's memory; the run goes back to what was saved",
	701: "a block of a kernel has more registers or shared memory than the device; this is a mistake of the program's",
	719: "a kernel failed; the device is lost to this process, and the run goes back to what was saved",
}

// Error names the call, the code and what to do.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, e.Code)
	if r := remedies[e.Code]; r != "" {
		s += ": " + r
	}
	return s
}

// call calls a function of the driver. What pointers among the arguments point to stays where it is until
// the call returns.
//
//go:uintptrescapes
func (l *Library) call(name string, f uintptr, args ...uintptr) error {
	r, _, _ := purego.SyscallN(f, args...)
	code := int(int32(r))
	if code == 0 {
		return nil
	}
	e := &Error{Call: name, Code: code, Name: "an error without a name"}
	var text *byte
	if l.errorName != 0 {
		if r, _, _ := purego.SyscallN(l.errorName, uintptr(code),
			uintptr(unsafe.Pointer(&text))); int32(r) == 0 && text != nil {
			e.Name = cString(text)
		}
	}
	return e
}

// cString is a C string of at most 256 bytes.
func cString(p *byte) string {
	b := unsafe.Slice(p, 256)
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// on calls f with a device's context, on one thread.
func (l *Library) on(ctx uintptr, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := l.call("cuCtxSetCurrent", l.setCurrent, ctx); err != nil {
		return err
	}
	return f()
}

// Count is the number of devices.
func (l *Library) Count() (int, error) {
	var n int32
	err := l.call("cuDeviceGetCount", l.deviceCount, uintptr(unsafe.Pointer(&n)))
	return int(n), err
}
