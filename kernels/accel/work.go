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

// Spare is device memory of n bytes until the end of the call, where there is some: a call that can do
// without does not fail for want of it.
func (q *Queue) Spare(n int) (at uint64, ok bool) {
	s, err := q.d.mem.take(n)
	if err != nil {
		return 0, false
	}
	q.work = append(q.work, s)
	return s.addr(), true
}

// Watched reports whether somebody is told when the call ran: what is put into the sequence beside its work
// would count as its own.
func (q *Queue) Watched() bool { return q.d.watch != nil }
