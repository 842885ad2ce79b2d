package accel

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// numbers are 0, 1, 2, … as bytes.
func numbers(n int) []byte {
	x := tensor.Make(tensor.F32, n)
	for i := range x.F32() {
		x.F32()[i] = float32(i)
	}
	return x.Bytes()
}

// TestStaging: what the host writes and reads goes through one block of pinned memory, of which no piece is
// used again before its copy is done; small writes share a piece.
func TestStaging(t *testing.T) {
	for _, n := range []int{0, 1, 16, pieceBytes / 4, pieceBytes/4 + 1, ringBytes/4 + 77,
		3*ringBytes/4 + 1} {
		b := newBench(t)
		b.f.calls.late = true
		x, y := b.make(b.pool, n), b.make(b.pool, n)
		b.d.Write(x, numbers(n))
		b.d.Write(y, values(7, n))
		b.holds(7, y)
		got := make([]byte, 4*n)
		b.d.Read(got, x)
		require.Equal(t, numbers(n), got, "%d", n)
		require.LessOrEqual(t, b.f.pins, 1)
		require.LessOrEqual(t, len(b.f.marks), ringPieces)
		require.NoError(t, b.d.Close())
		require.Zero(t, b.f.pinned)
	}
	b := newBench(t)
	b.f.calls.late = true
	for range 3 { // twice around the ring, with a part of a piece at its end
		var xs []*tensor.Tensor
		for i := range 24 {
			x := b.make(b.pool, 100_000)
			b.d.Write(x, values(i, 100_000))
			xs = append(xs, x)
		}
		for i, x := range xs {
			b.holds(i, x)
			x.Release()
		}
	}
	small := b.make(b.pool, 16)
	for range 100 {
		b.d.Write(small, numbers(16))
	}
	require.LessOrEqual(t, len(b.f.marks), ringPieces)
	r := &b.d.ring
	r.next, r.at = 0, pieceBytes-64
	_, i, err := r.piece(64)
	require.NoError(t, err)
	require.Zero(t, i, "it fits to the byte")
	_, i, err = r.piece(1)
	require.NoError(t, err)
	require.Equal(t, 1, i)
	require.Equal(t, 64, r.at)
	p, i, err := r.piece(65)
	require.NoError(t, err)
	require.Equal(t, 1, i, "small ones share a piece")
	require.Len(t, p, 65)
	require.Equal(t, 192, r.at)
	b.f.noPins = true
	f := newFake("fake memory")
	f.noPins = true
	d := New(f, f, Absent{})
	x, err := tensor.NewPool("device", 0).In(d).New("x", tensor.F32, 4)
	require.NoError(t, err)
	require.PanicsWithError(t, "device fake: no memory can be pinned", func() { d.Write(x, numbers(4)) })
}

// TestBlocks: memory is taken in blocks of 256 MiB, or less where the device has less; what is given back is
// used again, the smallest hole first, and blocks that nothing uses go back before a further one is refused.
func TestBlocks(t *testing.T) {
	b := newBench(t)
	x, y, z := b.make(b.pool, 1000), b.make(b.pool, 100), b.make(b.pool, 1)
	require.Equal(t, []int{blockBytes}, b.f.sizes)
	hx, _ := x.Storage()
	require.Zero(t, hx.(*span).addr()%alignBytes)
	require.Equal(t, 4096, hx.(*span).size)
	hz, _ := z.Storage()
	require.Equal(t, 256, hz.(*span).size)
	exact, _ := b.make(b.pool, 64).Storage()
	require.Equal(t, 256, exact.(*span).size)
	at := hx.(*span).addr()
	x.Release()
	x = b.make(b.pool, 900)
	hx, _ = x.Storage()
	require.Equal(t, at, hx.(*span).addr())
	const mib = 1 << 18 // elements
	big := b.make(b.pool, 257*mib)
	require.Equal(t, []int{blockBytes, 264 << 20}, b.f.sizes)
	big.Release()
	b.f.room = (256 + 280) << 20
	large := b.make(b.pool, 272*mib) // there is room when the block that nothing uses has gone back
	require.Equal(t, []int{272 << 20, 272 << 20}, b.f.sizes[2:])
	require.Equal(t, 2, len(b.f.blocks))
	large.Release()
	_, err := b.pool.New("w", tensor.F32, 304*mib)
	require.ErrorContains(t, err,
		"device: tensor w: the device is full; 4.8 KiB of the 256.0 MiB that this rank took "+
			"are in use: lower train.micro_batch")
	require.Equal(t, 1, len(b.f.blocks))
	b.f.room = (256 + 220) << 20
	b.make(b.pool, 200*mib)
	require.Equal(t, 1, len(b.f.blocks))
	b.make(b.pool, 200*mib)
	require.Equal(t, []int{blockBytes, 200 << 20}, b.f.sizes[len(b.f.sizes)-2:],
		"a small block where there is no more")
	_, _ = y, z
}

// TestBestHole: of several blocks the smallest hole is taken.
func TestBestHole(t *testing.T) {
	b := newBench(t)
	first := b.make(b.pool, 240<<18) // leaves 16 MiB
	second := b.make(b.pool, 252<<18)
	require.Equal(t, 2, len(b.f.blocks))
	block := func(x *tensor.Tensor) uint64 {
		h, _ := x.Storage()
		return h.(*span).b.addr
	}
	require.NotEqual(t, block(first), block(second))
	require.Equal(t, block(second), block(b.make(b.pool, 1000)))
	require.Equal(t, block(first), block(b.make(b.pool, 2<<20)), "more than the small hole has")
	require.Equal(t, block(second), block(b.make(b.pool, 1000)))
}

// lazy is a backend whose calls run when somebody waits for them.
type lazy struct {
	kernels.Backend
	calls  []*kernels.Call
	closed bool
}

func (l *lazy) Run(c *kernels.Call) { l.calls = append(l.calls, c) }

func (l *lazy) Sync() {
	for _, c := range l.calls {
		l.Backend.Run(c)
	}
	l.calls = nil
}

func (l *lazy) Close() error { l.closed = true; return nil }

// TestAbsent: an operation that the device does not have runs on the processor behind the calls so far, with
// operands that share storage sharing it there, and is said once; where that is not wanted it is an error.
func TestAbsent(t *testing.T) {
	told.Lock()
	told.ops = nil
	told.Unlock()
	var said bytes.Buffer
	f := newFake("absent memory")
	f.lacks[kernels.Sum], f.lacks[kernels.AdamW] = true, true
	opened := 0
	var host *lazy
	d := New(f, f, Absent{Tell: &said, Open: func() (kernels.Backend, error) {
		opened++
		host = &lazy{Backend: ref.New()}
		return host, nil
	}})
	b := &bench{t: t, f: f, d: d, pool: tensor.NewPool("device", 0).In(d)}
	m, err := d.Parking()
	require.NoError(t, err)
	b.host = tensor.NewPool("parked", 0).In(m)
	f.calls.late = true
	h := b.parked(3)
	b.in().late = true
	x, y := b.device(2), b.fetch(h)
	b.d.Run(&kernels.Call{Op: kernels.Sum, In: []*tensor.Tensor{x, x, y}, Out: []*tensor.Tensor{x}})
	b.holds(7, x)
	b.d.Run(&kernels.Call{Op: kernels.Sum, In: []*tensor.Tensor{x, tensor.Over(tensor.F32, values(1,
		elements),
		elements)}, Out: []*tensor.Tensor{x}})
	b.holds(8, x)
	hyper, clip := tensor.Make(tensor.F64, kernels.HyperLen), tensor.Make(tensor.F64, kernels.ClipLen)
	hyper.F64()[kernels.HyperLR], clip.F64()[kernels.ClipFactor] = 0, 1
	hyper.F64()[kernels.HyperCorrection1], hyper.F64()[kernels.HyperCorrection2] = 1, 1
	b.d.Run(&kernels.Call{Op: kernels.AdamW, In: []*tensor.Tensor{y, hyper, clip},
		Out: []*tensor.Tensor{x, b.device(0), b.device(0), nil}})
	b.holds(8, x)
	require.Equal(t, 1, opened)
	require.Equal(t,
		"fake: operation sum runs on the processor, with copies there and back: the device does not "+
			"have it\nfake: operation adamw runs on the processor, with copies there and back: the device does not have "+
			"it\n", said.String())
	require.NoError(t, d.Close())
	require.True(t, host.closed)

	b = newBench(t)
	b.f.lacks[kernels.Fill] = true
	require.PanicsWithError(t,
		"device fake: fill: the device does not have this operation for [], and operations of "+
			"the processor are not wanted", func() { b.fill(b.make(b.pool, 4), 1) })
	f = newFake("other memory")
	f.lacks[kernels.Fill] = true
	d = New(f, f, Absent{Open: func() (kernels.Backend, error) {
		return nil,
			errors.New("there is no processor")
	}})
	b = &bench{t: t, f: f, d: d, pool: tensor.NewPool("device", 0).In(d)}
	require.PanicsWithError(t, "device fake: fill: there is no processor", func() {
		b.fill(b.make(b.pool, 4), 1)
	})
}

// TestOperands: operands on the host are copied when a call is issued, results may not lie there, an absent
// operand is at 0, and working memory is given back behind the call.
func TestOperands(t *testing.T) {
	b := newBench(t)
	b.f.calls.late = true
	from := tensor.Over(tensor.F32, values(4, elements), elements)
	b.f.work = 1000
	x := b.make(b.pool, elements)
	held := b.d.mem.blocks[0].Used()
	b.d.Run(&kernels.Call{Op: kernels.Cast, In: []*tensor.Tensor{from}, Out: []*tensor.Tensor{x}})
	clear(from.Bytes())
	b.holds(4, x)
	require.Equal(t, held, b.d.mem.blocks[0].Used())
	require.PanicsWithValue(t, "accel: result f32[5000] of fill lies on the host", func() {
		b.fill(from,
			1)
	})
	require.Panics(t, func() {
		b.d.Run(&kernels.Call{Op: kernels.Cast, In: nil, Out: []*tensor.Tensor{x}})
	}, "a call is checked")
	q := &Queue{Driver: b.f, d: b.d}
	require.Zero(t, q.Addr(nil))
	b.f.room = 1
	require.Zero(t, q.Work(2*blockBytes))
	first := q.Failed()
	require.ErrorContains(t, first, "the device is full")
	q.Work(3 * blockBytes)
	require.Same(t, first, q.Failed(), "the first failure is said")
	require.Zero(t, q.Work(0)%alignBytes)
	b.f.room, b.f.work = 1, 2*blockBytes
	require.Panics(t, func() { b.fill(x, 1) })
	require.Zero(t, b.f.calls.done-len(b.f.calls.items), "nothing was issued")
	for _, n := range []int{1000, 50000, 2000} {
		b.f.work = n
		b.fill(x, 1)
	}
	op, most := b.d.MostWork()
	require.Equal(t, kernels.Fill, op)
	require.EqualValues(t, (50000+alignBytes-1)/alignBytes*alignBytes, most)
	b.f.work = 0
	shaped := func(v int, shape ...int) *tensor.Tensor {
		x, err := b.pool.New("x", tensor.F32, shape...)
		require.NoError(t, err)
		b.d.Write(x, values(v, x.Len()))
		return x
	}
	b.f.room = 0
	y, z := shaped(0, 2, 4), shaped(0, 2, 4)
	b.d.Run(&kernels.Call{Op: kernels.Linear, In: []*tensor.Tensor{shaped(2, 2, 3), shaped(5, 4, 3), nil},
		Out: []*tensor.Tensor{y}, Then: []*kernels.Call{{Op: kernels.Sum, In: []*tensor.Tensor{y, y},
			Out: []*tensor.Tensor{z}}}})
	got := make([]byte, z.Size())
	b.d.Read(got, z)
	require.Equal(t, values(60, 8), got, "an epilogue runs behind the product")
}

// TestEvents: an event is a point in the sequence of calls, which another device of the kind waits for in
// its own, and of another kind on the host; what is to be done behind calls is done in order.
func TestEvents(t *testing.T) {
	b, same := newBench(t), newBench(t)
	g := newFake("memory of another kind")
	other := &bench{t: t, f: g, d: New(g, g, Absent{Strict: true})}
	b.f.calls.late = true
	x := b.device(1)
	e := b.d.Record()
	b.fill(x, 2)
	for _, m := range b.f.marks { // the devices share marks, as those of one driver do
		same.f.marks[Mark(1000)] = m
	}
	ev := e.(*event)
	same.f.marks[ev.m] = b.f.marks[ev.m]
	same.d.Await(e)
	require.Zero(t, b.f.calls.done, "nobody has waited yet")
	same.d.Sync()
	require.Equal(t, ev.m, e.(*event).m)
	require.Equal(t, b.f.marks[ev.m].at, b.f.calls.done, "no further than the event")
	b.f.calls.late = true
	b.fill(x, 3)
	e = b.d.Record()
	other.d.Await(e)
	require.Equal(t, len(b.f.calls.items), b.f.calls.done)

	b.fill(x, 4)
	said := make(chan int, 2)
	b.d.Then(func() { said <- len(b.f.calls.items) - b.f.calls.done })
	b.d.Then(func() { said <- -1 })
	require.GreaterOrEqual(t, 1, <-said)
	require.Equal(t, -1, <-said)
	for i := range 3 { // who was idle goes on
		b.d.Then(func() { said <- i })
		require.Equal(t, i, <-said)
	}
	require.NoError(t, b.d.Close())
	require.EqualValues(t, 12345, b.d.Room())
	require.Equal(t, "fake", b.d.Name())
	require.Equal(t, "fake memory", b.d.Space())
}

// TestEventsForgotten: the mark of an event that nobody holds is given back.
func TestEventsForgotten(t *testing.T) {
	b := newBench(t)
	for range 100 {
		b.d.Record()
	}
	marks := func() int {
		b.f.mu.Lock()
		defer b.f.mu.Unlock()
		return len(b.f.marks)
	}
	for range 10_000 {
		if runtime.GC(); marks() < 10 {
			return
		}
	}
	t.Fatalf("%d marks are left", marks())
}

// TestBroken: a device that fails says so to whoever uses it next, and nobody waits for ever.
func TestBroken(t *testing.T) {
	b := newBench(t)
	x, h := b.device(1), b.parked(1)
	b.f.broken = errors.New("the device is lost")
	for name, use := range map[string]func(){
		"run":     func() { b.fill(x, 2) },
		"read":    func() { b.d.Read(make([]byte, 4*elements), x) },
		"write":   func() { b.d.Write(x, values(1, elements)) },
		"copy":    func() { b.d.Copy(b.make(b.pool, elements), x) },
		"away":    func() { b.d.Copy(h, x) },
		"back":    func() { b.fetch(h) },
		"record":  func() { b.d.Record() },
		"waiting": func() { b.d.Sync() },
	} {
		func() {
			defer func() {
				err, _ := recover().(error)
				require.ErrorContains(t, err, "the device is lost", name)
				require.ErrorAs(t, err, new(*kernels.DeviceError), name)
			}()
			use()
			t.Errorf("%s said nothing", name)
		}()
	}
	called := make(chan bool)
	b.d.Then(func() { close(called) })
	<-called
	require.NotPanics(t, x.Release)
	require.NoError(t, b.d.Close())
}

// joined is a fake driver whose library joins devices.
type joined struct {
	*fake
	moved  [][]Part
	behind []Mark
	fail   error
}

func (j *joined) Joins() bool                { return j.fail == nil }
func (j *joined) ChannelID() ([]byte, error) { return []byte{7}, nil }

func (j *joined) Channel(id []byte, sends bool) (Channel, error) {
	if j.fail != nil {
		return nil, j.fail
	}
	if id[0] != 7 || !sends {
		return nil, errors.New("not what was asked for")
	}
	return j, nil
}

func (j *joined) Move(parts []Part, behind Mark) error {
	j.moved, j.behind = append(j.moved, parts), append(j.behind, behind)
	return j.fake.Wait(behind)
}

func (j *joined) Abort() { j.fail = errors.New("aborted") }

// TestChannel: a channel moves what tensors have, behind the event that it is given or the calls so far.
func TestChannel(t *testing.T) {
	j := &joined{fake: newFake("fake memory")}
	d := New(j, j, Absent{})
	b := &bench{t: t, f: j.fake, d: d, pool: tensor.NewPool("device", 0).In(d)}
	require.True(t, d.Joins())
	id, err := d.ChannelID()
	require.NoError(t, err)
	_, err = d.Channel(id, false)
	require.Error(t, err)
	c, err := d.Channel(id, true)
	require.NoError(t, err)
	j.calls.late = true
	x, none := b.device(1), b.make(b.pool, 0)
	e := d.Record()
	require.NoError(t, c.Send([]*tensor.Tensor{x, none, x.RowSlice(10, 12)}, e))
	h, _ := x.Storage()
	at := h.(*span).addr()
	require.Equal(t, [][]Part{{{at, 4 * elements}, {at + 40, 8}}}, j.moved)
	require.Equal(t, e.(*event).m, j.behind[0])
	b.fill(x, 2)
	require.NoError(t, c.Receive([]*tensor.Tensor{x}))
	require.Equal(t, len(j.calls.items), j.calls.done, "behind the calls so far")
	b.fill(x, 3)
	require.NoError(t, c.Send([]*tensor.Tensor{x}, nil))
	require.Equal(t, len(j.calls.items), j.calls.done)
	c.Abort()
	require.False(t, d.Joins())
	require.False(t, newBench(t).d.Joins())
}
