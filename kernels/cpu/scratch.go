package cpu

import (
	"unsafe"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// scratch hands out float32 storage until reset, which keeps it for the next task. What is handed out is not
// cleared.
type scratch struct {
	buf        []float32
	used, want int
}

const (
	line = tensor.Align / 4 // float32s in a cache line
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
		return tensor.Make(tensor.F32, size).F32()[:n]
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
	if s.want > len(s.buf) {
		s.buf = tensor.Make(tensor.F32, s.want+s.want/8).F32()
	}
	s.used, s.want = 0, 0
}

// mark and release give back what was taken in between, for loops inside a task.
func (s *scratch) mark() int { return s.used }

func (s *scratch) release(m int) { s.used = m }
