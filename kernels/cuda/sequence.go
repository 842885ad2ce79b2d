//go:build cuda

package cuda

import (
	"time"
	"unsafe"

	"github.com/lfactor/lfactor/kernels/accel"
)

// sequence is a stream of a device.
type sequence struct {
	d      *device
	stream uintptr
}

var _ accel.Engines = (*device)(nil)

// Engine implements accel.Engines.
func (d *device) Engine() (accel.Engine, error) {
	s := &sequence{d: d}
	return s, s.begin()
}

func (s *sequence) begin() error {
	return s.d.do(func() error {
		return s.d.lib.call("cuStreamCreate", s.d.lib.newStream, uintptr(unsafe.Pointer(&s.stream)), streamNonBlocking)
	})
}

// Upload implements accel.Engine, and accel.Driver.
func (s *sequence) Upload(to uint64, from []byte) error {
	return s.d.do(func() error {
		return s.d.lib.call("cuMemcpyHtoDAsync", s.d.lib.upload, uintptr(to),
			uintptr(unsafe.Pointer(unsafe.SliceData(from))), uintptr(len(from)), s.stream)
	})
}

// Download implements accel.Engine, and accel.Driver.
func (s *sequence) Download(to []byte, from uint64) error {
	return s.d.do(func() error {
		return s.d.lib.call("cuMemcpyDtoHAsync", s.d.lib.download,
			uintptr(unsafe.Pointer(unsafe.SliceData(to))), uintptr(from), uintptr(len(to)), s.stream)
	})
}

// Mark implements accel.Engine, and accel.Driver.
func (s *sequence) Mark() (accel.Mark, error) {
	var e uintptr
	l := s.d.lib
	err := s.d.do(func() error {
		if err := l.call("cuEventCreate", l.newEvent, uintptr(unsafe.Pointer(&e)),
			eventBlocking|eventNoTiming); err != nil {
			return err
		}
		return l.call("cuEventRecord", l.record, e, s.stream)
	})
	return accel.Mark(e), err
}

// Stamp implements accel.Clock.
func (d *device) Stamp() (accel.Mark, error) {
	var e uintptr
	err := d.do(func() error {
		if err := d.lib.call("cuEventCreate", d.lib.newEvent, uintptr(unsafe.Pointer(&e)), eventBlocking); err != nil {
			return err
		}
		return d.lib.call("cuEventRecord", d.lib.record, e, d.stream)
	})
	return accel.Mark(e), err
}

// Between implements accel.Clock.
func (d *device) Between(a, b accel.Mark) (time.Duration, error) {
	var ms float32
	err := d.do(func() error {
		return d.lib.call("cuEventElapsedTime", d.lib.elapsed, uintptr(unsafe.Pointer(&ms)), uintptr(a), uintptr(b))
	})
	return time.Duration(float64(ms) * 1e6), err
}

// Await implements accel.Engine, and accel.Driver.
func (s *sequence) Await(m accel.Mark) error {
	return s.d.do(func() error {
		return s.d.lib.call("cuStreamWaitEvent", s.d.lib.waitEvent, s.stream, uintptr(m), 0)
	})
}

// Close implements accel.Engine.
func (s *sequence) Close() {
	// a device that failed says so elsewhere
	_ = s.d.do(func() error { return s.d.lib.call("cuStreamDestroy", s.d.lib.endStream, s.stream) })
}

// Upload implements accel.Driver.
func (d *device) Upload(to uint64, from []byte) error {
	if err := d.raise(); err != nil {
		return err
	}
	return d.sequence.Upload(to, from)
}

// Download implements accel.Driver.
func (d *device) Download(to []byte, from uint64) error {
	if err := d.raise(); err != nil {
		return err
	}
	return d.sequence.Download(to, from)
}

// Mark implements accel.Driver.
func (d *device) Mark() (accel.Mark, error) {
	if err := d.raise(); err != nil {
		return 0, err
	}
	return d.sequence.Mark()
}

// Await implements accel.Driver.
func (d *device) Await(m accel.Mark) error {
	if err := d.raise(); err != nil {
		return err
	}
	return d.sequence.Await(m)
}
