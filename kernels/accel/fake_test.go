package accel

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// fake is a driver in plain Go. What is put into a sequence runs as soon as the marks that the sequence awaits are
// reached, or, in a sequence that is late, when somebody waits for it: so a wait that is left out shows.
type fake struct {
	mu       sync.Mutex
	space    string
	blocks   map[uint64][]byte
	next     uint64
	room     int // bytes that Alloc gives, all blocks together; 0 is no limit
	pinned   int // blocks of pinned memory that are held
	pins     int // calls of Pinned
	noPins   bool
	sizes    []int // of all blocks that were asked for
	calls    *sequence
	all      []*sequence
	engines  int
	noEngine int // the call of Engine that fails, counted from 1
	marks    map[Mark]*point
	marked   Mark
	lacks    map[kernels.Op]bool
	broken   error // of whatever is put into a sequence
	work     int   // bytes of working memory that each operation takes
	closed   bool
}

// sequence is what a driver or an engine runs in order.
type sequence struct {
	f      *fake
	late   bool
	items  []item
	done   int
	closed bool
}

type item struct {
	run   func()
	await *point
}

// point is a place in a sequence.
type point struct {
	s  *sequence
	at int
}

func newFake(space string) *fake {
	f := &fake{space: space, blocks: map[uint64][]byte{}, next: 1 << 20, marks: map[Mark]*point{},
		lacks: map[kernels.Op]bool{}}
	f.calls = f.sequence()
	return f
}

func (f *fake) sequence() *sequence {
	s := &sequence{f: f}
	f.all = append(f.all, s)
	return s
}

func (p *point) reached() bool { return p.s.done >= p.at }

// step runs the next item of a sequence; a mark that it awaits is waited for if it must run.
func (s *sequence) step(must bool) bool {
	x := s.items[s.done]
	if x.await != nil && !x.await.reached() {
		if !must {
			return false
		}
		x.await.s.until(x.await.at)
	}
	if x.run != nil {
		x.run()
	}
	s.done++
	return true
}

func (s *sequence) until(at int) {
	for s.done < at {
		s.step(true)
	}
}

// put adds an item and lets all run that are not late.
func (s *sequence) put(x item) error {
	f := s.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return f.broken
	}
	if s.closed {
		panic("a sequence is used after it was closed")
	}
	s.items = append(s.items, x)
	for again := true; again; {
		again = false
		for _, s := range f.all {
			for !s.late && s.done < len(s.items) && s.step(false) {
				again = true
			}
		}
	}
	return nil
}

// at is device memory, which must be that of one block.
func (f *fake) at(addr uint64, n int) []byte {
	for from, b := range f.blocks {
		if addr >= from && addr+uint64(n) <= from+uint64(len(b)) {
			return b[addr-from : addr-from+uint64(n)]
		}
	}
	panic(fmt.Sprintf("no device memory at %#x of %d bytes", addr, n))
}

func (f *fake) Space() string { return f.space }
func (f *fake) Name() string  { return "fake" }
func (f *fake) Room() int64   { return 12345 }

func (f *fake) Alloc(n int) (uint64, error) {
	f.sizes = append(f.sizes, n)
	held := n
	for _, b := range f.blocks {
		held += len(b)
	}
	if f.room > 0 && held > f.room {
		return 0, errors.New("the device is full")
	}
	at := f.next
	f.next += uint64(n+255)/256*256 + 256
	f.blocks[at] = make([]byte, n)
	return at, nil
}

func (f *fake) Free(addr uint64) {
	if f.blocks[addr] == nil {
		panic("freed what was not taken")
	}
	delete(f.blocks, addr)
}

func (f *fake) Pinned(n int) ([]byte, error) {
	if f.noPins {
		return nil, errors.New("no memory can be pinned")
	}
	f.pinned++
	f.pins++
	return make([]byte, n), nil
}

func (f *fake) Unpin([]byte) { f.pinned-- }

func (s *sequence) Upload(to uint64, from []byte) error {
	return s.put(item{run: func() { copy(s.f.at(to, len(from)), from) }})
}

func (s *sequence) Download(to []byte, from uint64) error {
	return s.put(item{run: func() { copy(to, s.f.at(from, len(to))) }})
}

func (s *sequence) Mark() (Mark, error) {
	if err := s.put(item{}); err != nil {
		return 0, err
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.marked++
	s.f.marks[s.f.marked] = &point{s, len(s.items)}
	return s.f.marked, nil
}

func (s *sequence) Await(m Mark) error { return s.put(item{await: s.f.point(m)}) }

func (s *sequence) Close() {
	s.closed = true
	s.f.engines--
}

func (f *fake) point(m Mark) *point {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.marks[m]
	if p == nil {
		panic(fmt.Sprintf("there is no mark %d", m))
	}
	return p
}

func (f *fake) Upload(to uint64, from []byte) error   { return f.calls.Upload(to, from) }
func (f *fake) Download(to []byte, from uint64) error { return f.calls.Download(to, from) }
func (f *fake) Mark() (Mark, error)                   { return f.calls.Mark() }
func (f *fake) Await(m Mark) error                    { return f.calls.Await(m) }

func (f *fake) Copy(to, from uint64, n int) error {
	return f.calls.put(item{run: func() { copy(f.at(to, n), f.at(from, n)) }})
}

func (f *fake) Clear(at uint64, v byte, n int) error {
	return f.calls.put(item{run: func() { copy(f.at(at, n), slices.Repeat([]byte{v}, n)) }})
}

func (f *fake) Wait(m Mark) error {
	p := f.point(m)
	f.mu.Lock()
	defer f.mu.Unlock()
	p.s.until(p.at)
	return f.broken
}

func (f *fake) Drop(m Mark) {
	f.point(m)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.marks, m)
}

func (f *fake) Close() { f.closed = true }

// Engine implements Engines.
func (f *fake) Engine() (Engine, error) {
	if f.noEngine--; f.noEngine == 0 {
		return nil, errors.New("no further sequence")
	}
	f.engines++
	return f.sequence(), nil
}

// Issue implements Program: the arithmetic of kernels/ref on device memory.
func (f *fake) Issue(q *Queue, c *kernels.Call) (bool, error) {
	if f.lacks[c.Op] {
		return false, nil
	}
	type operand struct {
		at uint64
		t  *tensor.Tensor
	}
	of := func(ts []*tensor.Tensor) (out []operand) {
		for _, t := range ts {
			out = append(out, operand{q.Addr(t), t})
		}
		return out
	}
	in, out := of(c.In), of(c.Out)
	if f.work > 0 {
		q.Work(f.work)
	}
	if q.Failed() != nil {
		return true, nil
	}
	there := func(os []operand) (ts []*tensor.Tensor) {
		for _, o := range os {
			if o.t == nil {
				ts = append(ts, nil)
				continue
			}
			ts = append(ts, tensor.Over(o.t.DType, f.at(o.at, o.t.Size()), o.t.Shape...))
		}
		return ts
	}
	return true, f.calls.put(item{run: func() {
		ref.New().Run(&kernels.Call{Op: c.Op, Attr: c.Attr, In: there(in), Out: there(out)})
	}})
}

// bench is a device of a fake driver with pools, and what the tests do with it.
type bench struct {
	t          *testing.T
	f          *fake
	d          *Device
	pool, host *tensor.Pool
}

const elements = 5000 // of the tensors of most tests

func newBench(t *testing.T) *bench {
	f := newFake("fake memory")
	b := &bench{t: t, f: f, d: New(f, f, Absent{Strict: true})}
	b.pool = tensor.NewPool("device", 0).In(b.d)
	m, err := b.d.Parking()
	require.NoError(t, err)
	b.host = tensor.NewPool("parked", 0).In(m)
	return b
}

func (b *bench) out() *sequence { return b.f.all[1] }
func (b *bench) in() *sequence  { return b.f.all[2] }

func (b *bench) make(p *tensor.Pool, n int) *tensor.Tensor {
	b.t.Helper()
	x, err := p.New("x", tensor.F32, n)
	require.NoError(b.t, err)
	return x
}

func (b *bench) fill(x *tensor.Tensor, v int) {
	b.d.Run(&kernels.Call{Op: kernels.Fill, Out: []*tensor.Tensor{x},
		Attr: kernels.Attr{F: [2]float64{float64(v)}}})
}

// device is a tensor on the device that is filled with v, parked one on the host.
func (b *bench) device(v int) *tensor.Tensor {
	x := b.make(b.pool, elements)
	b.fill(x, v)
	return x
}

func (b *bench) parked(v int) *tensor.Tensor {
	h := b.make(b.host, elements)
	kernels.Write(h, values(v, elements))
	return h
}

func values(v, n int) []byte {
	x := tensor.Make(tensor.F32, n)
	for i := range x.F32() {
		x.F32()[i] = float32(v)
	}
	return x.Bytes()
}

// fetch copies a parked tensor to the device, copied is the result of a call that reads x.
func (b *bench) fetch(h *tensor.Tensor) *tensor.Tensor {
	x := b.make(b.pool, h.Len())
	b.d.Copy(x, h)
	return x
}

func (b *bench) copied(x *tensor.Tensor) *tensor.Tensor {
	out := b.make(b.pool, x.Len())
	b.d.Run(&kernels.Call{Op: kernels.Cast, In: []*tensor.Tensor{x}, Out: []*tensor.Tensor{out}})
	return out
}

func (b *bench) holds(v int, x *tensor.Tensor) {
	b.t.Helper()
	got := make([]byte, x.Size())
	kernels.Read(b.d, got, x)
	require.Equal(b.t, values(v, x.Len()), got)
}
