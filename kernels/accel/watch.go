package accel

import (
	"time"

	"github.com/lfactor/lfactor/kernels"
)

// Clock is a driver that can tell when a mark was reached. Between, and Drop of a stamp, may be called
// by any goroutine.
type Clock interface {
	// Stamp is a mark whose time can be told; what waits to be launched with others goes on waiting.
	Stamp() (Mark, error)
	// Between is the time from one stamp to a later one, which have both been reached.
	Between(a, b Mark) (time.Duration, error)
}

// watch is who is told when calls ran. last and at are of the goroutine that waits.
type watch struct {
	drv   Driver
	clock Clock
	begin func(c *kernels.Call) func(start, end time.Time)
	last  Mark
	at    time.Time // when last was reached
}

var _ kernels.Timed = (*Device)(nil)

// Watch implements kernels.Timed.
func (d *Device) Watch(begin func(c *kernels.Call) func(start, end time.Time)) bool {
	clock, ok := d.drv.(Clock)
	if !ok {
		return false
	}
	d.mu.Lock()
	if w := d.watch; w != nil {
		told := make(chan struct{})
		d.watch = nil
		d.waits.push(func() {
			d.drv.Drop(w.last)
			close(told)
		})
		d.mu.Unlock()
		<-told
		d.mu.Lock()
	}
	defer d.mu.Unlock()
	if begin == nil || d.closed {
		return true
	}
	m, err := clock.Stamp()
	d.must(err)
	d.must(d.drv.Wait(m))
	d.watch = &watch{drv: d.drv, clock: clock, begin: begin, last: m, at: time.Now()}
	return true
}

// watched issues a call between two stamps, where somebody watches.
func (d *Device) watched(c *kernels.Call, issue func()) {
	w := d.watch
	var ran func(start, end time.Time)
	if w != nil {
		ran = w.begin(c)
	}
	if ran == nil {
		issue()
		return
	}
	start, err := w.clock.Stamp()
	d.must(err)
	issue()
	end, err := w.clock.Stamp()
	d.must(err)
	d.waits.push(func() { w.tell(start, end, ran) })
}

// tell waits for a call and says when it ran. Times are added up from stamp to stamp: a driver tells short
// ones exactly, and long ones in few bits. A device that failed says so to whoever runs something next.
func (w *watch) tell(start, end Mark, ran func(start, end time.Time)) {
	defer w.drv.Drop(start)
	before, took := time.Duration(0), time.Duration(0)
	err := w.drv.Wait(end)
	if err == nil {
		before, err = w.clock.Between(w.last, start)
	}
	if err == nil {
		took, err = w.clock.Between(start, end)
	}
	w.drv.Drop(w.last)
	w.last = end
	if err != nil {
		return
	}
	begun := w.at.Add(before)
	w.at = begun.Add(took)
	ran(begun, w.at)
}
