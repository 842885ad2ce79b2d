//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lfactor/lfactor/kernels/accel"
)

// ExchangeVariable names a libnccl in the environment; "none" lets what devices of several processes
// exchange go through the host.
const ExchangeVariable = "LFACTOR_LIBNCCL"

// Exchange is NVIDIA's library of communication, NCCL, as a way from device to device. Its sums are not
// used: their order depends on the machine.
type Exchange struct {
	// Path is where it was found.
	Path string
	// Version is the library's number of itself: 23203.
	Version int

	uniqueID, abort, state, send, receive, begin, end, name, why uintptr
	join                                                         func(comm unsafe.Pointer, ranks int32,
		id channelID, rank int32, config unsafe.Pointer) int32
}

// channelID is ncclUniqueId.
type channelID struct{ bytes [128]byte }

func (l *Exchange) symbols() map[string]*uintptr {
	return map[string]*uintptr{"ncclGetUniqueId": &l.uniqueID, "ncclCommAbort": &l.abort,
		"ncclCommGetAsyncError": &l.state, "ncclSend": &l.send, "ncclRecv": &l.receive,
		"ncclGroupStart": &l.begin, "ncclGroupEnd": &l.end, "ncclGetErrorString": &l.name,
		"ncclGetLastError": &l.why}
}

// exchangeLibrary says where NCCL is looked for.
var exchangeLibrary = lookup{variable: ExchangeVariable, names: []string{"libnccl.so.2"},
	wheels: []string{"nccl/lib"}, pip: "nvidia-nccl-cu13"}

// oldestNCCL is the first version whose communicators are made and aborted without waiting, with limits to
// the multiprocessors that they take.
const oldestNCCL = 21800

// FindExchange loads the library that LFACTOR_LIBNCCL names, or the machine's. Without one, or with "none",
// there is no error unless the one that was named cannot be used.
func FindExchange() (*Exchange, error) {
	l, _, err := find(exchangeLibrary, LoadExchange)
	return l, err
}

// LoadExchange loads the library from a path or by its name.
func LoadExchange(path string) (*Exchange, error) {
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, &missingError{fmt.Errorf("%s: %w", path, err)}
	}
	l := &Exchange{Path: path}
	var version uintptr
	symbols := l.symbols()
	symbols["ncclGetVersion"] = &version
	var join uintptr
	symbols["ncclCommInitRankConfig"] = &join
	for name, p := range symbols {
		if *p, err = purego.Dlsym(h, name); err != nil {
			return nil, fmt.Errorf("%s has no %s: it is not NCCL 2.18 or later", path, name)
		}
	}
	purego.RegisterFunc(&l.join, join) // SyscallN passes no struct
	var v int32
	if err := l.call("ncclGetVersion", version, uintptr(unsafe.Pointer(&v))); err != nil {
		return nil, err
	}
	if l.Version = int(v); l.Version < oldestNCCL {
		return nil, fmt.Errorf("%s is NCCL %s, and %s is needed: pip install --upgrade %s", path,
			ncclVersion(l.Version), ncclVersion(oldestNCCL), exchangeLibrary.pip)
	}
	return l, nil
}

// ncclVersion is a number of NCCL's as it is written.
func ncclVersion(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// describeExchange says in a line how devices of several processes exchange tensors.
func describeExchange() string {
	return describeLibrary(exchangeLibrary, LoadExchange,
		"exchanges between processes through the host", func(l *Exchange) string {
			return fmt.Sprintf("exchanges between processes by NCCL %s, %s", ncclVersion(l.Version), l.Path)
		})
}

const ncclUnderWay = 7 // a result: ask again

// call calls a function of the library; what is under way is no error.
//
//go:uintptrescapes
func (l *Exchange) call(name string, f uintptr, args ...uintptr) error {
	r, _, _ := purego.SyscallN(f, args...)
	return l.failed(name, int(int32(r)))
}

func (l *Exchange) failed(name string, code int) error {
	if code == 0 || code == ncclUnderWay {
		return nil
	}
	text := func(f, arg uintptr) string {
		if p, _, _ := purego.SyscallN(f, arg); p != 0 {
			return cString(*(**byte)(unsafe.Pointer(&p)))
		}
		return ""
	}
	return fmt.Errorf("%s: %s (%d) %s; %s=none exchanges through the host", name, text(l.name, uintptr(code)),
		code, text(l.why, 0), ExchangeVariable)
}

// ncclConfig is ncclConfig_t as NCCL 2.18 has it; later versions take it by its size and version.
type ncclConfig struct {
	size                            uintptr
	magic, version                  uint32
	blocking, cluster, fewest, most int32
	net                             uintptr
	split, reserved                 int32
}

// newConfig asks for a communicator that is made without waiting.
func newConfig() *ncclConfig {
	undefined := int32(math.MinInt32)
	return &ncclConfig{size: unsafe.Sizeof(ncclConfig{}), magic: 0xcafebeef, version: oldestNCCL,
		cluster: undefined, fewest: 1, most: channelBlocks, split: undefined}
}

// channelBlocks is how many blocks of a device a channel takes while it moves something: many channels are
// open at once, and each has to find its place.
const channelBlocks = 2

// end is one end of a channel: a communicator of two ranks, and a stream of its own.
type channelEnd struct {
	d      *device
	sends  bool
	stream uintptr

	mu   sync.Mutex // calls of the library do not wait, so that an abort is never late
	comm uintptr    // 0 once it is aborted
}

var errAborted = errors.New("the channel to another process's device was aborted")

// Joins implements accel.Joining.
func (d *device) Joins() bool { return d.exchange != nil }

// ChannelID implements accel.Joining.
func (d *device) ChannelID() (id []byte, err error) {
	u := new(channelID)
	err = d.do(func() error {
		return d.exchange.call("ncclGetUniqueId", d.exchange.uniqueID, uintptr(unsafe.Pointer(u)))
	})
	return u.bytes[:], err
}

// Channel implements accel.Joining.
func (d *device) Channel(id []byte, sends bool) (accel.Channel, error) {
	u := channelID{}
	if copy(u.bytes[:], id) != len(u.bytes) || len(id) != len(u.bytes) {
		return nil, fmt.Errorf("the name of a channel has %d bytes, want %d", len(id), len(u.bytes))
	}
	e := &channelEnd{d: d, sends: sends}
	config := newConfig()
	rank := int32(1)
	if sends {
		rank = 0
	}
	return e, d.do(func() error {
		if err := d.lib.call("cuStreamCreate", d.lib.newStream, uintptr(unsafe.Pointer(&e.stream)),
			streamNonBlocking); err != nil {
			return err
		}
		return d.exchange.failed("ncclCommInitRankConfig", int(d.exchange.join(unsafe.Pointer(&e.comm), 2, u,
			rank, unsafe.Pointer(config))))
	})
}

// Move implements accel.Channel.
func (e *channelEnd) Move(parts []accel.Part, behind accel.Mark) error {
	if err := e.settled(); err != nil {
		return err
	}
	var done uintptr
	l := e.d.lib
	err := e.d.do(func() error {
		if err := l.call("cuStreamWaitEvent", l.waitEvent, e.stream, uintptr(behind), 0); err != nil {
			return err
		}
		if err := e.put(parts); err != nil {
			return err
		}
		return l.call("cuEventCreate", l.newEvent, uintptr(unsafe.Pointer(&done)), eventNoTiming)
	})
	if err != nil {
		return err
	}
	defer e.d.Drop(accel.Mark(done))
	if err := e.settled(); err != nil { // until then the library may still have to launch
		return err
	}
	if err := e.d.do(func() error { return l.call("cuEventRecord", l.record, done, e.stream) }); err != nil {
		return err
	}
	return e.until(func() (bool, error) {
		err := e.d.do(func() error { return l.call("cuEventQuery", l.queryEvent, done) })
		var x *Error
		if errors.As(err, &x) && x.Code == notReady {
			return false, nil
		}
		return err == nil, err
	})
}

// put issues the sends or the receives of parts as one group, on the thread that has the context.
func (e *channelEnd) put(parts []accel.Part) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.comm == 0 {
		return errAborted
	}
	l := e.d.exchange
	f, name, peer := l.receive, "ncclRecv", uintptr(0)
	if e.sends {
		f, name, peer = l.send, "ncclSend", 1
	}
	if err := l.call("ncclGroupStart", l.begin); err != nil {
		return err
	}
	var first error
	for _, p := range parts {
		if first == nil {
			first = l.call(name, f, uintptr(p.At), uintptr(p.Size), 0, peer, e.comm, e.stream)
		}
	}
	return errors.Join(first, l.call("ncclGroupEnd", l.end))
}

// settled waits until the library has done what it was asked to: to find the other end, or to launch.
func (e *channelEnd) settled() error {
	return e.until(func() (bool, error) { return true, nil })
}

// until waits until the library has nothing under way and a condition holds; that the other end is lost, or
// an abort, ends it.
func (e *channelEnd) until(holds func() (bool, error)) error {
	for pause := 5 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		busy, err := e.busy()
		if err != nil {
			return err
		}
		if !busy {
			if ok, err := holds(); ok || err != nil {
				return err
			}
		}
		time.Sleep(pause)
	}
}

func (e *channelEnd) busy() (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.comm == 0 {
		return false, errAborted
	}
	var state int32
	l := e.d.exchange
	if err := l.call("ncclCommGetAsyncError", l.state, e.comm, uintptr(unsafe.Pointer(&state))); err != nil {
		return false, err
	}
	return state == ncclUnderWay, l.failed("NCCL", int(state))
}

// Abort implements accel.Channel.
func (e *channelEnd) Abort() {
	e.mu.Lock()
	comm := e.comm
	e.comm = 0
	e.mu.Unlock()
	if comm == 0 {
		return
	}
	_ = e.d.do(func() error { // whatever it says, the channel is over
		_ = e.d.exchange.call("ncclCommAbort", e.d.exchange.abort, comm) // it is given up whatever it says
		return e.d.lib.call("cuStreamDestroy", e.d.lib.endStream, e.stream)
	})
}
