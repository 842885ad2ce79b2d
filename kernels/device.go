package kernels

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Device is a backend with memory of its own, whose calls may run after Run has returned, in the order in
// which they were issued. What Run reads on the host, scalars and operands that lie there, it reads before
// it returns. Read and Write are the only ways for the host to see or change device memory.
//
// A job that has issued its last call is done for the actor that asked for it; results are valid for later
// calls of the same device. Others wait for the event that was recorded behind them.
type Device interface {
	Backend
	tensor.Memory
	// Read copies a tensor to the host when every call issued so far has finished.
	Read(dst []byte, t *tensor.Tensor)
	// Write copies from the host, behind every call issued so far; src may be used again on return.
	Write(t *tensor.Tensor, src []byte)
	// Copy copies a tensor of a device of the same kind, which may be another one, behind every call issued
	// so far here.
	Copy(dst, src *tensor.Tensor)
	// Record returns an event that is reached when every call issued so far has finished.
	Record() Event
	// Await holds later calls back until an event, of this device or another, is reached.
	Await(e Event)
	// Then calls f when every call issued so far has finished.
	Then(f func())
}

// Reached is memory whose contents the host gets at by copies, as a Device's, and as that of tensors parked beside one.
type Reached interface {
	tensor.Memory
	// Read copies a tensor to the host when what was issued to fill it has finished.
	Read(dst []byte, t *tensor.Tensor)
	// Write copies from the host; src may be used again on return.
	Write(t *tensor.Tensor, src []byte)
}

// Timed is a device that knows when it ran a call, which is later than when the call was issued.
type Timed interface {
	Device
	// Watch has every later call told to begin when it is issued, which is before Run returns, and what begin returned
	// told between which instants the device ran it. Calls that wait to be launched with others count to the call that
	// launches them. It returns when what was watched so far has been told, and with nil nothing is watched any more;
	// false where the device cannot tell. What it is told must not call the device.
	Watch(begin func(c *Call) (ran func(start, end time.Time))) bool
}

// Sized is a device that knows how much memory it has.
type Sized interface {
	// Room is in bytes, of the whole device; 0 is unknown.
	Room() int64
}

// Parker is a device that keeps tensors in host memory which it reaches by itself: copies there and back run
// beside its calls.
type Parker interface {
	Device
	// Parks reports whether it does.
	Parks() bool
	// Parking is that memory. Copy, between it and the device's own, goes beside the device's calls.
	Parking() (Reached, error)
}

// Joiner is a device that its vendor's library can join with devices of other processes, so that tensors
// need not pass through the host.
type Joiner interface {
	Device
	// Joins reports whether the library is there; the other methods want that.
	Joins() bool
	// ChannelID makes the name of a new channel, which both of its ends are opened with.
	ChannelID() ([]byte, error)
	// Channel opens this device's end of a channel. It does not wait for the other one.
	Channel(id []byte, sends bool) (Channel, error)
}

// Channel carries tensors one way, from one device to another, in order and without a sequence of calls of
// either that waits for the other device: what is sent is complete, and what was received is there, when a
// method returns. One goroutine at a time uses a channel, but for Abort.
type Channel interface {
	// Send sends tensors as they are when an event is reached.
	Send(ts []*tensor.Tensor, behind Event) error
	// Receive fills tensors of the same sizes.
	Receive(ts []*tensor.Tensor) error
	// Abort ends the channel, and with an error what is under way, also where the other end is lost. A
	// channel that is not needed any more is aborted.
	Abort()
}

// DeviceError is a device that failed, or a library that drives it: the world's fault and not a call's.
// Methods of a Device that can return no error panic with one.
type DeviceError struct {
	Device string
	Err    error
}

// Error names the device.
func (e *DeviceError) Error() string { return fmt.Sprintf("device %s: %v", e.Device, e.Err) }

// Unwrap is the cause.
func (e *DeviceError) Unwrap() error { return e.Err }

// Event is a point in a device's sequence of calls.
type Event interface {
	// Wait returns when the point is reached.
	Wait()
}

// Read copies a tensor's bytes to the host.
func Read(b Backend, dst []byte, t *tensor.Tensor) {
	if t.OnHost() {
		copy(dst, t.Bytes())
		return
	}
	owner, ok := t.Memory().(Reached)
	if !ok {
		panic(fmt.Sprintf("kernels: %s cannot read %v of %s", b.Name(), t, t.Memory().Space()))
	}
	owner.Read(dst, t)
}

// Write copies bytes of the host to a tensor.
func Write(t *tensor.Tensor, src []byte) {
	if t.OnHost() {
		copy(t.Bytes(), src)
		return
	}
	t.Memory().(Reached).Write(t, src)
}

// Move copies a tensor between a backend's memory and where its tensors wait on the host. Where the device
// copies by itself it goes beside the calls, and each call that needs the result waits for it.
func Move(b Backend, to, from *tensor.Tensor) {
	switch {
	case from.Memory() != to.Memory() && !from.OnHost() && !to.OnHost(): // parked beside the device, or back
		b.(Device).Copy(to, from)
	case from.OnHost() == to.OnHost():
		b.Run(&Call{Op: Cast, In: []*tensor.Tensor{from}, Out: []*tensor.Tensor{to}})
	case to.OnHost():
		Read(b, to.Bytes(), from)
	default:
		Write(to, from.Bytes())
	}
}

// Ints are the elements of an i32 tensor, wherever it lies.
func Ints(b Backend, t *tensor.Tensor) []int32 {
	if t.OnHost() {
		return t.I32()
	}
	out := make([]int32, t.Len())
	if len(out) > 0 {
		Read(b, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(out))), 4*len(out)), t)
	}
	return out
}

// Host is a tensor with the same contents on the host: itself, with a reference of its own, if it lies there.
func Host(b Backend, t *tensor.Tensor) *tensor.Tensor {
	if t.OnHost() {
		return t.Retain()
	}
	h := tensor.Make(t.DType, t.Shape...)
	Read(b, h.Bytes(), t)
	return h
}
