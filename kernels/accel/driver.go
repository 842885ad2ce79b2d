// Package accel makes a kernels.Device of an accelerator's driver: it hands out parts of few large blocks
// of device memory, stages what the host writes and reads in pinned memory, and runs on the processor
// what the accelerator does not have.
//
// A device has one sequence of calls. Memory that is given back is free for whatever comes later in that
// sequence at once; what another device still reads, its rank holds until that is done.
package accel

import "github.com/lfactor/lfactor/kernels"

// Driver is a device as its library offers it. Work is put into one sequence; the methods that do so return at once,
// and fail only where the device or the library does. One goroutine at a time calls it, but for Wait.
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

// Joining is a driver whose library joins devices of several processes.
type Joining interface {
	// Joins reports whether the library is there.
	Joins() bool
	// ChannelID makes the name of a new channel.
	ChannelID() ([]byte, error)
	// Channel opens this device's end of one, with a sequence of its own.
	Channel(id []byte, sends bool) (Channel, error)
}

// Channel is one end of a way to another device; see kernels.Channel.
type Channel interface {
	// Move sends or receives parts of device memory behind a mark, and returns when that is done.
	Move(parts []Part, behind Mark) error
	// Abort ends the channel and what is under way.
	Abort()
}

// Part is a part of device memory.
type Part struct {
	At   uint64
	Size int
}

// Mark is a place in a device's sequence, as its driver knows it.
type Mark uintptr

// Program runs operations on a device.
type Program interface {
	// Issue puts the work of a call into the device's sequence. It returns false, and has done nothing,
	// if the device does not have the operation for these operands. The call has been checked and has no epilogues.
	Issue(q *Queue, c *kernels.Call) (bool, error)
}
