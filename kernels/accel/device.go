package accel

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Device implements kernels.Device. Its methods may be called from any goroutine; calls are in the order
// in which they take its lock.
type Device struct {
	mu     sync.Mutex
	drv    Driver
	prog   Program
	mem    memory
	ring   ring
	closed bool
	absent Absent
	host   kernels.Backend // for operations that are absent, once there was one
	waits  waiter

	park     *parking // nil before it is asked for
	pending  []*span  // given back, and still read by copies away
	landings []landed
	incoming []*span // copies back that the device's calls have not waited for
	watch    *watch  // nil for nobody
	work     Work    // the most of any call so far
}

var _ kernels.Device = (*Device)(nil)

// New makes a device of a driver and of the program that runs operations on it; it owns both.
func New(drv Driver, prog Program, absent Absent) *Device {
	d := &Device{drv: drv, prog: prog, mem: memory{drv: drv}, ring: ring{drv: drv}, absent: absent}
	d.waits.more = sync.NewCond(&d.waits.mu)
	d.mem.more = d.reap
	return d
}

// Name implements kernels.Backend.
func (d *Device) Name() string { return d.drv.Name() }

// Room implements kernels.Sized.
func (d *Device) Room() int64 {
	if s, ok := d.drv.(kernels.Sized); ok {
		return s.Room()
	}
	return 0
}

// Ails implements kernels.Ailing.
func (d *Device) Ails() []string {
	if a, ok := d.drv.(kernels.Ailing); ok {
		return a.Ails()
	}
	return nil
}

// Space implements tensor.Memory.
func (d *Device) Space() string { return d.drv.Space() }

// Close waits for all calls and gives back the device's memory.
func (d *Device) Close() error {
	d.Watch(nil)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	if m, err := d.finalMark(); err == nil {
		_ = d.drv.Wait(m) // a device that failed has said so
		d.drv.Drop(m)
	}
	if d.park != nil {
		d.park.close()
	}
	d.waits.close()
	d.closed = true
	d.ring.close()
	for _, b := range d.mem.blocks {
		d.drv.Free(b.addr)
	}
	d.drv.Close()
	if d.host != nil {
		kernels.Close(d.host)
	}
	return nil
}

// finalMark is behind all sequences.
func (d *Device) finalMark() (Mark, error) {
	if p := d.park; p != nil {
		for _, e := range []Engine{p.out, p.in} {
			m, err := e.Mark()
			if err == nil {
				err = d.behind(d.drv, &m)
			}
			if err != nil {
				return 0, err
			}
		}
	}
	return d.drv.Mark()
}

// must panics for a device that failed.
func (d *Device) must(err error) {
	if err != nil {
		panic(&kernels.DeviceError{Device: d.drv.Name(), Err: err})
	}
}

// Alloc implements tensor.Memory.
func (d *Device) Alloc(n int) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mem.take(n)
}

// Free implements tensor.Memory. What comes later in the sequence may use the memory.
func (d *Device) Free(handle any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	// a device that failed says so to whoever runs something next
	switch s := handle.(*span); {
	case s.landing:
		_ = d.behind(d.drv, &s.awaits) // as a rule a call has done so
		_ = d.leave(s)                 // as above
	case s.busy != 0:
		if d.pending = append(d.pending, s); len(d.pending) > mostPending {
			_, _ = d.reap() // as above
		}
	default:
		d.mem.give(s.region)
	}
}

// address is where a tensor's elements lie on its device.
func address(t *tensor.Tensor) uint64 {
	h, at := t.Storage()
	s := h.(*span)
	s.fresh = false
	return s.addr() + uint64(at)
}

// outputs makes the device's calls wait for copies away that still read what a call changes.
func (d *Device) outputs(c *kernels.Call) error {
	for _, t := range c.Out {
		if t == nil {
			continue
		}
		h, _ := t.Storage()
		if err := d.behind(d.drv, &h.(*span).busy); err != nil {
			return err
		}
	}
	return nil
}

// Run implements kernels.Backend.
func (d *Device) Run(c *kernels.Call) {
	if err := kernels.Check(c); err != nil {
		panic("accel: " + err.Error())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watched(c, func() {
		d.issue(c)
		for _, e := range c.Then {
			d.issue(e)
		}
	})
}

// issue puts one operation into the sequence.
func (d *Device) issue(c *kernels.Call) {
	for _, t := range c.Out {
		if t != nil && t.OnHost() {
			panic(fmt.Sprintf("accel: result %v of %s lies on the host", t, c.Op))
		}
	}
	d.must(d.outputs(c))
	q := &Queue{Driver: d.drv, d: d}
	defer q.release(c.Op)
	there, err := d.prog.Issue(q, c)
	if err == nil {
		err = q.err
	}
	if err == nil && !there {
		err = d.onHost(c)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", c.Op, err)
	}
	d.must(err)
}

// Queue is what a program issues a call with.
type Queue struct {
	Driver
	d    *Device
	work []*span
	err  error // the first failure of Work or Addr
}

// Work is device memory of n bytes until the end of the call.
func (q *Queue) Work(n int) uint64 {
	s, err := q.d.mem.take(n)
	if err != nil {
		if q.err == nil {
			q.err = err
		}
		return 0
	}
	q.work = append(q.work, s)
	return s.addr()
}

// Addr is where the elements of an operand lie; one that lies on the host is copied now. An absent operand is at 0.
func (q *Queue) Addr(t *tensor.Tensor) uint64 {
	if t == nil {
		return 0
	}
	if !t.OnHost() {
		h, _ := t.Storage()
		if s := h.(*span); s.awaits != 0 {
			if err := q.d.behind(q.d.drv, &s.awaits); err != nil && q.err == nil {
				q.err = err
			}
		}
		return address(t)
	}
	at := q.Work(t.Size())
	if q.err == nil {
		q.err = q.d.ring.write(at, t.Bytes())
	}
	return at
}

// Failed is the first failure of Work or Addr: what they gave is then of no use.
func (q *Queue) Failed() error { return q.err }

// Sync implements kernels.Backend.
func (d *Device) Sync() { d.Record().Wait() }

// Read implements kernels.Device.
func (d *Device) Read(dst []byte, t *tensor.Tensor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.must(d.settle())
	d.must(d.ring.read(dst, address(t)))
}

// Write implements kernels.Device.
func (d *Device) Write(t *tensor.Tensor, src []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.must(d.settle())
	d.must(d.outputs(&kernels.Call{Out: []*tensor.Tensor{t}}))
	d.must(d.ring.write(address(t), src))
}

// Copy implements kernels.Device.
func (d *Device) Copy(dst, src *tensor.Tensor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := src.Size()
	if h, at := dst.Storage(); n > 0 && dst.Memory() == tensor.Memory(d.park) && d.park != nil {
		d.must(d.park.away(h.(*slot), at, src))
		return
	}
	if h, at := src.Storage(); n > 0 && src.Memory() == tensor.Memory(d.park) && d.park != nil {
		d.must(d.park.back(dst, h.(*slot), at))
		return
	}
	if n > 0 {
		d.must(d.settle())
		d.must(d.outputs(&kernels.Call{Out: []*tensor.Tensor{dst}}))
		d.must(d.drv.Copy(address(dst), address(src), n))
	}
}

// event is a mark that others may wait for; it is given back with the value.
type event struct {
	d *Device
	m Mark
}

// Wait implements kernels.Event.
func (e *event) Wait() {
	e.d.must(e.d.drv.Wait(e.m))
	runtime.KeepAlive(e)
}

// Record implements kernels.Device.
func (d *Device) Record() kernels.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.must(d.settle())
	m, err := d.drv.Mark()
	d.must(err)
	e := &event{d, m}
	runtime.AddCleanup(e, d.drop, m)
	return e
}

// drop gives back a mark that nobody waits for any more.
func (d *Device) drop(m Mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.drv.Drop(m)
	}
}

// Await implements kernels.Device. The host itself waits for a device of another kind.
func (d *Device) Await(e kernels.Event) {
	x, ok := e.(*event)
	if !ok || x.d.Space() != d.Space() {
		e.Wait()
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.must(d.drv.Await(x.m))
	runtime.KeepAlive(x)
}

// Then implements kernels.Device.
func (d *Device) Then(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.settle()
	m := Mark(0)
	if err == nil {
		m, err = d.drv.Mark()
	}
	if err != nil {
		go f() // nothing is under way on a device that failed
		return
	}
	d.waits.push(func() {
		_ = d.drv.Wait(m) // whatever comes of it, f's time has come
		f()
		d.drop(m)
	})
}

// waiter calls functions one after another, on a goroutine that starts with the first.
type waiter struct {
	mu      sync.Mutex
	more    *sync.Cond
	list    []func()
	running bool
	ends    bool
}

func (w *waiter) push(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, f)
	if !w.running {
		w.running = true
		go w.run()
	}
	w.more.Signal()
}

func (w *waiter) run() {
	for {
		w.mu.Lock()
		for len(w.list) == 0 && !w.ends {
			w.more.Wait()
		}
		if len(w.list) == 0 {
			w.mu.Unlock()
			return
		}
		f := w.list[0]
		w.list = w.list[1:]
		w.mu.Unlock()
		f()
	}
}

// close lets the goroutine end behind the last function.
func (w *waiter) close() {
	w.mu.Lock()
	w.ends = true
	w.mu.Unlock()
	w.more.Signal()
}
