package cpu

import (
	"unsafe"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// scratch hands out float32 storage until reset, which keeps it for the next task. What is handed out is not
// cleared. It comes from a pool outside the Go heap, where a buffer that grows leaves nothing to the collector.
type scratch struct {
	buf        []float32
	used, want int
	pool       *tensor.Pool
	held       *tensor.Tensor   // buf
	more       []*tensor.Tensor // what did not fit into it
	from       []int            // where each of more would have begun
}

// storage is n new float32s.
func (s *scratch) storage(n int) *tensor.Tensor {
	if s.pool != nil {
		if t, err := s.pool.New("scratch", tensor.F32,
			n); err == nil { // else the Go heap has room or panics
			return t
		}
	}
	return tensor.Make(tensor.F32, n)
}

const (
	line = tensor.Align / 4 // float32s in a cache line
	// moreMost bounds what a buffer that grows has beyond what is wanted.
	moreMost = 64 << 10
	// slack follows every piece of scratch: primitives may read and write a vector past its end.
	slack = 4 * line
)

// f32 returns n elements, aligned to a cache line.
func (s *scratch) f32(n int) []float32 {
	size := (n + slack + line - 1) / line * line
	at := s.used
	s.used += size
	s.want = max(s.want, s.used)
	if s.used > len(s.buf) {
		s.more, s.from = append(s.more, s.storage(size)), append(s.from, at)
		return s.more[len(s.more)-1].F32()[:n:size]
	}
	return s.buf[at : at+n : at+size]
}

// u16 returns n 16-bit elements.
func (s *scratch) u16(n int) []uint16 {
	v := s.f32((n + 1) / 2)
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(v))), cap(v)*2)[:n]
}

// zero returns n elements that are 0.
func (s *scratch) zero(n int) []float32 {
	v := s.f32(n)
	clear(v[:cap(v)])
	return v
}

// reset takes everything back. If the task did not fit, the next one of its size will, and one that wants a
// little more: operations of growing sizes would leave a buffer each to the collector.
func (s *scratch) reset() {
	s.release(0)
	if want := s.want; want > len(s.buf) {
		s.free()
		s.held = s.storage(want + min(want/8, moreMost))
		s.buf = s.held.F32()
		if s.pool != nil {
			s.pool.Discard() // what lay there before
		}
	}
	s.used, s.want = 0, 0
}

// free gives all storage back.
func (s *scratch) free() {
	if s.held != nil {
		s.held.Release()
	}
	s.buf, s.held = nil, nil
}

// mark and release give back what was taken in between, for loops inside a task. What did not fit goes back to the pool
// at once: the first step of a loop would hold the pieces of all its rounds.
func (s *scratch) mark() int { return s.used }

func (s *scratch) release(m int) {
	s.used = m
	n := len(s.more)
	for ; n > 0 && s.from[n-1] >= m; n-- {
		s.more[n-1].Release()
		s.more[n-1] = nil
	}
	s.more, s.from = s.more[:n], s.from[:n]
}
