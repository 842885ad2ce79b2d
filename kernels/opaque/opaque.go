// Package opaque is a device for tests: the arithmetic of kernels/ref in memory that the host cannot read,
// with calls that run on a goroutine of their own after random delays. What forgets to wait, reads device
// memory or frees it too early gives other bits, or panics with the name of what was used.
package opaque

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Device implements kernels.Device.
type Device struct {
	mu     sync.Mutex
	more   *sync.Cond
	calls  []func()
	closed bool
	rand   *rand.Rand
	ref    kernels.Backend
	failed atomic.Pointer[string] // what the engine died of
	Issued atomic.Int64           // calls so far
}

var _ kernels.Device = (*Device)(nil)

// block is device memory.
type block struct {
	words []uint64
	freed bool
}

// New starts a device; seed decides its delays.
func New(seed uint64) *Device {
	d := &Device{rand: rand.New(rand.NewPCG(seed, 1)), ref: ref.New()}
	d.more = sync.NewCond(&d.mu)
	go d.work()
	return d
}

// Close ends the device when all its calls have run.
func (d *Device) Close() error {
	d.Sync()
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.more.Signal()
	return nil
}

// Name implements kernels.Backend.
func (d *Device) Name() string { return "opaque" }

// Space implements tensor.Memory.
func (d *Device) Space() string { return "opaque memory" }

// Alloc implements tensor.Memory.
func (d *Device) Alloc(n int) (any, error) {
	b := &block{words: make([]uint64, (n+7)/8)}
	for i := range b.words {
		b.words[i] = 0xfff7fff7fff7fff7 // not a number, in every width
	}
	return b, nil
}

// Free implements tensor.Memory: the block stays until all calls issued so far have run.
func (d *Device) Free(handle any) { d.issue(func() { handle.(*block).freed = true }) }

// issue puts a call behind the others.
func (d *Device) issue(f func()) {
	d.mu.Lock()
	d.calls = append(d.calls, f)
	d.mu.Unlock()
	d.Issued.Add(1)
	d.more.Signal()
}

// work runs calls in order, some at once and some late.
func (d *Device) work() {
	for {
		d.mu.Lock()
		for len(d.calls) == 0 && !d.closed {
			d.more.Wait()
		}
		if len(d.calls) == 0 {
			d.mu.Unlock()
			return
		}
		f := d.calls[0]
		d.calls = d.calls[1:]
		d.mu.Unlock()
		switch n := d.rand.IntN(64); {
		case n == 0:
			time.Sleep(20 * time.Microsecond)
		case n < 8:
			runtime.Gosched()
		}
		d.guard(f)
	}
}

// guard keeps a panic of a call for the next who waits.
func (d *Device) guard(f func()) {
	defer func() {
		if x := recover(); x != nil {
			s := fmt.Sprint(x)
			d.failed.CompareAndSwap(nil, &s)
		}
	}()
	f()
}

// operand is a tensor as a call will find it.
type operand struct {
	b     *block
	host  []byte // of a scalar operand
	at    int
	dtype tensor.DType
	shape []int
}

func (d *Device) operand(t *tensor.Tensor, out bool) *operand {
	if t == nil {
		return nil
	}
	o := &operand{dtype: t.DType, shape: append([]int(nil), t.Shape...)}
	if t.OnHost() {
		if out {
			panic(fmt.Sprintf("opaque: result %v lies on the host", t))
		}
		o.host = append([]byte(nil), t.Bytes()...)
		return o
	}
	h, at := t.Storage()
	o.b, o.at = h.(*block), at
	return o
}

// bytes are those of a block, which must not have been freed.
func (o *operand) bytes() []byte {
	n := tensor.Len(o.shape) * o.dtype.Size()
	if o.host != nil || n == 0 {
		return o.host
	}
	if o.b.freed {
		panic(fmt.Sprintf("opaque: %v%v is used after it was freed", o.dtype, o.shape))
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(o.b.words))), 8*len(o.b.words))[o.at : o.at+n]
}

func (o *operand) tensor() *tensor.Tensor {
	if o == nil {
		return nil
	}
	return tensor.Over(o.dtype, o.bytes(), o.shape...)
}

// captured is a call with its operands.
type captured struct {
	c       kernels.Call
	in, out []*operand
	then    []*captured
}

func (d *Device) capture(c *kernels.Call) *captured {
	x := &captured{c: kernels.Call{Op: c.Op, Attr: c.Attr}}
	for _, t := range c.In {
		x.in = append(x.in, d.operand(t, false))
	}
	for _, t := range c.Out {
		x.out = append(x.out, d.operand(t, true))
	}
	for _, e := range c.Then {
		x.then = append(x.then, d.capture(e))
	}
	return x
}

func (x *captured) call() *kernels.Call {
	c := x.c
	for _, o := range x.in {
		c.In = append(c.In, o.tensor())
	}
	for _, o := range x.out {
		c.Out = append(c.Out, o.tensor())
	}
	for _, e := range x.then {
		c.Then = append(c.Then, e.call())
	}
	return &c
}

// Run implements kernels.Backend.
func (d *Device) Run(c *kernels.Call) {
	if err := kernels.Check(c); err != nil {
		panic("opaque: " + err.Error())
	}
	x := d.capture(c)
	d.issue(func() { d.ref.Run(x.call()) })
}

// event is a point in the sequence of calls.
type event chan struct{}

func (e event) Wait() { <-e }

// Record implements kernels.Device.
func (d *Device) Record() kernels.Event {
	e := make(event)
	d.issue(func() { close(e) })
	return e
}

// Await implements kernels.Device.
func (d *Device) Await(e kernels.Event) { d.issue(e.Wait) }

// Then implements kernels.Device.
func (d *Device) Then(f func()) { d.issue(f) }

// Sync implements kernels.Backend. It panics with what a call has panicked with.
func (d *Device) Sync() {
	d.Record().Wait()
	if s := d.failed.Load(); s != nil {
		panic(*s)
	}
}

// Read implements kernels.Device.
func (d *Device) Read(dst []byte, t *tensor.Tensor) {
	o := d.operand(t, false)
	d.issue(func() { copy(dst, o.bytes()) })
	d.Sync()
}

// Write implements kernels.Device.
func (d *Device) Write(t *tensor.Tensor, src []byte) {
	o, from := d.operand(t, true), append([]byte(nil), src...)
	d.issue(func() { copy(o.bytes(), from) })
}

// Copy implements kernels.Device.
func (d *Device) Copy(dst, src *tensor.Tensor) {
	to, from := d.operand(dst, true), d.operand(src, false)
	d.issue(func() { copy(to.bytes(), from.bytes()) })
}
