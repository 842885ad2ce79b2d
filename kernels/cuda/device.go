//go:build cuda

package cuda

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/lfactor/lfactor/kernels/accel"
	"github.com/lfactor/lfactor/kernels/cuda/source"
)

// device is one stream of one device: what a rank has of it.
type device struct {
	lib    *Library
	info   Info
	ctx    uintptr
	module uintptr
	sequence
	engine *engine // of products; nil where the project's kernel does them
	// of attention, likewise
	attends *attender
	ranges  *Ranges // nil where no tool watches
	// between processes; nil where tensors go through the host
	exchange *Exchange
	health   *health // nil where nothing tells of it
	calls    Calls   // who calls the driver in this device's stead; nil for itself

	mu        sync.Mutex
	functions map[string]function

	waiting waiting
	words   []uint64 // of a launch of many tensors
}

var _ accel.Driver = (*device)(nil)

// open makes a stream on a device and loads the kernels there.
func (l *Library) open(index int) (*device, error) {
	n, err := l.Count()
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= n {
		return nil, fmt.Errorf("there is no device cuda:%d; the driver has %d (CUDA_VISIBLE_DEVICES hides others)",
			index, n)
	}
	d := &device{lib: l, functions: map[string]function{}}
	d.sequence.d = d
	if d.info, err = l.Describe(index); err != nil {
		return nil, err
	}
	if d.ctx, d.module, err = l.kernelsOn(index); err != nil {
		return nil, fmt.Errorf("cuda:%d (%s): %w", index, d.info.Name, err)
	}
	return d, d.sequence.begin()
}

// Flags of streams, events and pinned memory.
const (
	streamNonBlocking = 1 // does not wait for the default stream
	eventBlocking     = 1 // who waits sleeps
	eventNoTiming     = 2
	pinnedPortable    = 1 // for all contexts
)

// join lets a device read and write another's memory, where there is a way between them: copies are then made
// from one to the other. Else, and where the driver has no more ways to give, it makes them by way of the host,
// which is slower and no fault.
func (l *Library) join(index int, ctx uintptr, other int, to uintptr) {
	var can int32
	if l.call("cuDeviceCanAccessPeer", l.reaches, uintptr(unsafe.Pointer(&can)), uintptr(index),
		uintptr(other)) != nil || can == 0 {
		return
	}
	_ = l.on(ctx, func() error { // see above
		return l.call("cuCtxEnablePeerAccess", l.peer, to, 0)
	})
}

// kernelsOn is the primary context of a device and our kernels in it, which all ranks on the device share.
func (l *Library) kernelsOn(index int) (ctx, module uintptr, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx = l.contexts[index]; ctx == 0 {
		if err := l.call("cuDevicePrimaryCtxRetain", l.retain, uintptr(unsafe.Pointer(&ctx)),
			uintptr(index)); err != nil {
			return 0, 0, err
		}
		for other, c := range l.contexts {
			l.join(index, ctx, other, c)
			l.join(other, c, index, ctx)
		}
		l.contexts[index] = ctx
	}
	if module = l.modules[index]; module == 0 {
		err := l.on(ctx, func() error {
			return l.call("cuModuleLoadData", l.load, uintptr(unsafe.Pointer(&module)),
				uintptr(unsafe.Pointer(unsafe.StringData(source.Image))))
		})
		if err != nil {
			return 0, 0, err
		}
		l.modules[index] = module
	}
	return ctx, module, nil
}

func (d *device) do(f func() error) error { return d.lib.on(d.ctx, f) }

// Space implements accel.Driver.
func (d *device) Space() string { return "memory of CUDA devices" }

// Room implements kernels.Sized.
func (d *device) Room() int64 { return d.info.Memory }

// Name implements accel.Driver.
func (d *device) Name() string {
	with := ""
	if d.engine != nil {
		with = fmt.Sprintf(", cublasLt %d", d.engine.lib.Version)
	}
	if d.attends != nil {
		with += ", cuDNN " + cudnnVersion(d.attends.lib.Version)
	}
	return fmt.Sprintf("cuda:%d (%s%s)", d.info.Index, d.info.Name, with)
}

// Ails implements kernels.Ailing.
func (d *device) Ails() []string { return d.health.news() }

// Alloc implements accel.Driver.
func (d *device) Alloc(n int) (addr uint64, err error) {
	err = d.do(func() error {
		return d.lib.call("cuMemAlloc", d.lib.alloc, uintptr(unsafe.Pointer(&addr)), uintptr(n))
	})
	return addr, err
}

// Free implements accel.Driver.
func (d *device) Free(addr uint64) {
	_ = d.raise()           // a device that failed says so elsewhere
	_ = d.do(func() error { // a device that failed says so elsewhere
		return d.lib.call("cuMemFree", d.lib.free, uintptr(addr))
	}) // fails only where the device is lost
}

// Pinned implements accel.Driver.
func (d *device) Pinned(n int) ([]byte, error) {
	var p unsafe.Pointer
	err := d.do(func() error {
		return d.lib.call("cuMemHostAlloc", d.lib.pinned, uintptr(unsafe.Pointer(&p)), uintptr(n), pinnedPortable)
	})
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// Unpin implements accel.Driver.
func (d *device) Unpin(b []byte) {
	_ = d.do(func() error { // a device that failed says so elsewhere
		return d.lib.call("cuMemFreeHost", d.lib.unpin, uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	})
}

// Copy implements accel.Driver. Addresses of all devices are in one space, and the driver knows whose each is.
func (d *device) Copy(to, from uint64, n int) error {
	if err := d.raise(); err != nil {
		return err
	}
	if d.calls != nil {
		return d.calls.Copy(to, from, n)
	}
	return d.do(func() error {
		return d.lib.call("cuMemcpyAsync", d.lib.move, uintptr(to), uintptr(from), uintptr(n), d.stream)
	})
}

// Clear implements accel.Driver.
func (d *device) Clear(at uint64, v byte, n int) error {
	if err := d.raise(); err != nil {
		return err
	}
	if d.calls != nil {
		return d.calls.Clear(at, v, n)
	}
	return d.do(func() error {
		return d.lib.call("cuMemsetD8Async", d.lib.clear, uintptr(at), uintptr(v), uintptr(n), d.stream)
	})
}

// Wait implements accel.Driver.
func (d *device) Wait(m accel.Mark) error {
	return d.do(func() error { return d.lib.call("cuEventSynchronize", d.lib.syncEvent, uintptr(m)) })
}

// Drop implements accel.Driver.
func (d *device) Drop(m accel.Mark) {
	// a device that failed says so elsewhere a device that failed says so elsewhere
	_ = d.do(func() error { return d.lib.call("cuEventDestroy", d.lib.endEvent, uintptr(m)) })
}

// Close implements accel.Driver. The context and the kernels stay for other ranks.
func (d *device) Close() {
	if d.waiting.part != 0 {
		d.Free(d.waiting.part)
	}
	d.closeEngine()
	d.closeAttender()
	d.sequence.Close()
}

// function is a kernel: bytes of shared memory that its blocks have of their own, and words of its parameter, 0 where
// the driver does not tell.
type function struct {
	f             uintptr
	static, words int
}

// Attributes of a kernel, as the driver numbers them: shared memory of its own, and how much more a launch may ask for.
const (
	funcStatic  = 1
	funcDynamic = 8
)

// defaultShared is the shared memory that a block may have where nobody has raised it.
const defaultShared = 48 << 10

// room is the shared memory that a block may have; other bindings do not raise it.
func (d *device) room() int {
	if d.calls != nil {
		return defaultShared
	}
	return d.info.SharedMemory
}

// function finds a kernel, and lets its launches ask for all the shared memory that the device has for a block.
func (d *device) function(name string) (f function, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f = d.functions[name]; f.f != 0 {
		return f, nil
	}
	n := append([]byte(name), 0)
	var static int32
	var at, size uintptr
	if err = d.lib.call("cuModuleGetFunction "+name, d.lib.function, uintptr(unsafe.Pointer(&f.f)), d.module,
		uintptr(unsafe.Pointer(&n[0]))); err != nil {
		return f, err
	}
	if err = d.lib.call("cuFuncGetAttribute "+name, d.lib.funcAsk, uintptr(unsafe.Pointer(&static)), funcStatic,
		f.f); err != nil {
		return f, err
	}
	f.static = int(static)
	if err = d.lib.call("cuFuncSetAttribute "+name, d.lib.funcAttribute, f.f, funcDynamic,
		uintptr(d.info.SharedMemory-f.static)); err != nil {
		return f, err
	}
	if d.lib.parameters != 0 {
		if err = d.lib.call("cuFuncGetParamInfo "+name, d.lib.parameters, f.f, 0, uintptr(unsafe.Pointer(&at)),
			uintptr(unsafe.Pointer(&size))); err != nil {
			return f, err
		}
		f.words = int(size) / 8
	}
	d.functions[name] = f
	return f, nil
}

// grid is how a kernel is launched: blocks along three axes, threads and bytes of shared memory of each.
type grid struct {
	x, y, z         int
	threads, shared int
}

// launch starts a kernel whose parameter is a struct of these words.
func (d *device) launch(name string, g grid, args []uint64) error {
	if d.calls != nil {
		return d.calls.Launch(name, [3]int{g.x, max(g.y, 1), max(g.z, 1)}, g.threads, g.shared, args)
	}
	return d.do(func() error {
		f, err := d.function(name)
		if err != nil {
			return err
		}
		if f.words != 0 && f.words != len(args) {
			panic(fmt.Sprintf("cuda: kernel %s is launched with %d words and has %d", name, len(args), f.words))
		}
		var pin runtime.Pinner // the list of parameters points to the parameter
		defer pin.Unpin()
		pin.Pin(&args[0])
		params := [1]unsafe.Pointer{unsafe.Pointer(&args[0])}
		return d.lib.call("cuLaunchKernel "+name, d.lib.launch, f.f, uintptr(g.x), uintptr(max(g.y, 1)),
			uintptr(max(g.z, 1)), uintptr(g.threads), 1, 1, uintptr(g.shared), d.stream, uintptr(unsafe.Pointer(&params[0])), 0)
	})
}
