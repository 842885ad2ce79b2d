// Package accel makes a kernels.Device of an accelerator's driver: it hands out parts of few large blocks
// of device memory, stages what the host writes and reads in pinned memory, and runs on the processor
// what the accelerator does not have.
//
// A device has one sequence of calls. Memory that is given back is free for whatever comes later in that
// sequence at once; what another device still reads, its rank holds until that is done.
package accel

import "github.com/lfactor/lfactor/kernels"

// Driver is a device as its library offers it. Work is put into one sequence; the methods that do so
// return at once, and fail only where the device or the library does. One goroutine at a time calls it,
// but for Wait.
type Driver interface {
	// Space names the kind of memory: addresses of one kind can be copied from device to device.
	Space() string
	// Name is what this device is called in messages: "cuda:1 (NVIDIA H100)".
	Name() string
	// Alloc takes device memory, at least as aligned as a vector load wants: 256 bytes.
	Alloc(n int) (addr uint64, err error)
	// Free gives back what Alloc gave, when nothing uses it any more.
	Free(addr uint64)
	// Pinned takes host memory that the device can reach.
	Pinned(n int) ([]byte, error)
	// Unpin gives it back.
	Unpin(b []byte)
	// Upload copies from pinned memory, which must stay as it is until then.
	Upload(to uint64, from []byte) error
	// Download copies to pinned memory.
	Download(to []byte, from uint64) error
	// Copy copies between device memory, also another device's of the same kind.
	Copy(to, from uint64, n int) error
	// Clear sets bytes.
	Clear(at uint64, v byte, n int) error
	// Mark makes a mark behind all that was put into the sequence.
	Mark() (Mark, error)
	// Await holds the sequence back until a mark of any device of this kind is reached.
	Await(m Mark) error
	// Wait returns when a mark is reached; any goroutine may call it.
	Wait(m Mark) error
	// Drop gives a mark back.
	Drop(m Mark)
	// Close gives back what the driver holds. Nothing is under way.
	Close()
}

// Mark is a place in a device's sequence, as its driver knows it.
type Mark uintptr

// Program runs operations on a device.
type Program interface {
	// Issue puts the work of a call into the device's sequence. It returns false, and has done nothing,
	// if the device does not have the operation for these operands. The call has been checked and has no
	// epilogues.
	Issue(q *Queue, c *kernels.Call) (bool, error)
}
