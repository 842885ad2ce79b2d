package accel

import "github.com/lfactor/lfactor/kernels"

// Work is device memory that a call had beside its operands and results.
type Work struct {
	Op    kernels.Op `json:"op"`
	Bytes int64      `json:"bytes"`
}

// MostWork is that of the call that had most so far. It is no tensor's, and no pool counts it.
func (d *Device) MostWork() (op kernels.Op, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.work.Op, d.work.Bytes
}

// release gives back what the call of an operation had, and remembers who had most.
func (q *Queue) release(op kernels.Op) {
	var all int64
	for _, s := range q.work {
		all += int64(s.size)
		q.d.mem.give(s.region)
	}
	if all > q.d.work.Bytes {
		q.d.work = Work{op, all}
	}
}
