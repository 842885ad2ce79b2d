package accel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// each runs every test on a device of its own.
func each(t *testing.T, tests map[string]func(b *bench)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(newBench(t)) })
	}
}

// TestLandings: each thing that a copy to the device has to wait for before it uses memory again is late once.
func TestLandings(t *testing.T) {
	each(t, map[string]func(b *bench){
		"a landing that calls still read": func(b *bench) {
			a, c := b.parked(1), b.parked(2)
			x := b.fetch(a)
			b.d.Sync()
			b.f.calls.late = true
			out := b.copied(x)
			x.Release()
			y := b.fetch(c)
			b.in().until(len(b.in().items))
			b.holds(1, out)
			b.holds(2, y)
		},
		"a landing that a copy away still reads": func(b *bench) {
			a, c, to := b.parked(1), b.parked(2), b.parked(0)
			x := b.fetch(a)
			b.d.Sync()
			b.out().late = true
			b.d.Copy(to, x)
			x.Release()
			y := b.fetch(c)
			b.in().until(len(b.in().items))
			b.holds(1, to)
			b.holds(2, y)
		},
		"landings that are given back while copies away read them": func(b *bench) {
			var xs, to []*tensor.Tensor
			for i := range mostLanding + 2 {
				xs, to = append(xs, b.fetch(b.parked(i))), append(to, b.parked(-1))
			}
			b.d.Sync()
			b.out().late = true
			for i, x := range xs {
				b.d.Copy(to[i], x)
			}
			for i, x := range xs {
				x.Release()
				require.Len(b.t, b.d.landings, min(i+1, mostLanding))
			}
			for range 4 { // in the memory of those that were given back first
				b.device(99)
			}
			for i := range to {
				b.holds(i, to[i])
			}
		},
	})
}

// TestAway: the same of memory on the device that copies away read.
func TestAway(t *testing.T) {
	each(t, map[string]func(b *bench){
		"memory that a copy away still reads is not changed": func(b *bench) {
			x, to := b.device(1), b.parked(0)
			b.d.Sync()
			b.out().late = true
			b.d.Copy(to, x)
			b.fill(x, 9)
			b.holds(1, to)
			y, z := b.device(2), b.device(3)
			b.d.Copy(to, y)
			b.d.Copy(y, z)
			b.holds(2, to)
			b.d.Copy(to, z)
			b.d.Write(z, values(4, elements))
			b.holds(3, to)
			b.holds(4, z)
		},
		"memory that a copy away still reads is not given to others": func(b *bench) {
			b.out().late = true
			var to []*tensor.Tensor
			for i := range 2 * mostPending {
				x := b.device(i)
				to = append(to, b.make(b.host, elements))
				b.d.Copy(to[i], x)
				x.Release()
				require.LessOrEqual(b.t, len(b.d.pending), mostPending)
			}
			require.Len(b.t, b.d.pending, mostPending)
			for i := range to {
				b.holds(i, to[i])
			}
		},
	})
}

// TestBack: and of what copies back fill.
func TestBack(t *testing.T) {
	each(t, map[string]func(b *bench){
		"what was fetched is used behind the copy": func(b *bench) {
			a := b.parked(5)
			b.in().late = true
			b.holds(5, b.copied(b.fetch(a)))
			b.holds(5, b.fetch(a))
			y := b.make(b.pool, elements)
			b.d.Copy(y, b.fetch(a))
			b.holds(5, y)
			b.d.Record() // for another device
			z := b.fetch(a)
			e := b.d.Record()
			e.Wait()
			h, _ := z.Storage()
			require.Equal(b.t, values(5, elements), b.f.at(h.(*span).addr(), 4*elements))
			called := make(chan []byte)
			w := b.fetch(a)
			h, _ = w.Storage()
			b.d.Then(func() { called <- b.f.at(h.(*span).addr(), 4*elements) })
			require.Equal(b.t, values(5, elements), <-called)
		},
		"a part that comes back leaves the rest as it is": func(b *bench) {
			b.fetch(b.parked(1)).Release() // a landing of the size
			for _, from := range []int{0, 1000} {
				x := b.device(7)
				part := b.make(b.host, 500)
				kernels.Write(part, values(5, 500))
				rows := x.RowSlice(from, from+500)
				b.d.Copy(rows, part)
				b.holds(5, rows)
				b.holds(7, x.RowSlice(from+500, elements))
			}
			require.Len(b.t, b.d.landings, 1)
		},
		"a landing that no call has used is free behind its copy": func(b *bench) {
			a := b.parked(5)
			b.in().late = true
			x := b.fetch(a)
			x.Release()
			y := b.make(b.pool, elements)
			b.fill(y, 6)
			b.holds(6, y)
			b.in().until(len(b.in().items))
			b.holds(6, y)
		},
	})
}

// TestPlaces: the same of places on the host.
func TestPlaces(t *testing.T) {
	each(t, map[string]func(b *bench){
		"that a copy back still reads": func(b *bench) {
			a, y := b.parked(1), b.device(9)
			b.in().late = true
			x := b.fetch(a)
			b.d.Copy(a, y)
			b.holds(1, x)
			b.holds(9, a)
		},
		"that a copy back of another still reads": func(b *bench) {
			a, y := b.parked(1), b.device(9)
			b.in().late = true
			x := b.fetch(a)
			a.Release()
			c := b.make(b.host, elements)
			b.d.Copy(c, y)
			b.holds(1, x)
			b.holds(9, c)
		},
		"whose copy back is not waited for by others": func(b *bench) {
			a, c, y := b.parked(1), b.parked(2), b.device(9)
			b.in().late = true
			filled := b.make(b.host, elements)
			b.d.Copy(filled, y)
			done := b.in().done
			b.fetch(a)
			b.d.Copy(filled, y)
			b.holds(9, filled)
			b.d.Copy(c, y)
			b.holds(9, c)
			require.Equal(b.t, done, b.in().done, "the copy back has not run")
		},
		"that a copy away has not filled yet": func(b *bench) {
			a, y := b.make(b.host, elements), b.device(3)
			b.out().late = true
			b.d.Copy(a, y)
			b.holds(3, b.fetch(a))
		},
	})
}

// TestPlacesByHost: and where the host itself reads and writes.
func TestPlacesByHost(t *testing.T) {
	each(t, map[string]func(b *bench){
		"that the host reads": func(b *bench) {
			a, y := b.make(b.host, elements), b.device(3)
			b.out().late = true
			b.d.Copy(a, y)
			b.holds(3, a)
		},
		"that the host writes behind a copy away": func(b *bench) {
			a, y := b.make(b.host, elements), b.device(3)
			b.out().late = true
			b.d.Copy(a, y)
			kernels.Write(a, values(5, elements))
			b.out().until(len(b.out().items))
			b.holds(5, b.fetch(a))
		},
		"that the host writes while a copy back reads": func(b *bench) {
			a := b.parked(3)
			b.in().late = true
			x := b.fetch(a)
			kernels.Write(a, values(5, elements))
			b.holds(3, x)
			b.holds(5, a)
		},
		"that the host fills anew while a copy back reads": func(b *bench) {
			a := b.parked(3)
			b.in().late = true
			x := b.fetch(a)
			a.Release()
			c := b.parked(5)
			b.holds(3, x)
			b.holds(5, c)
		},
		"of which parts come and go": func(b *bench) {
			a := b.parked(3)
			x := b.make(b.pool, 100)
			b.fill(x, 8)
			part := a.RowSlice(700, 800)
			b.d.Copy(part, x)
			y := b.make(b.pool, 300)
			b.d.Copy(y, a.RowSlice(600, 900))
			got := tensor.Make(tensor.F32, 300)
			kernels.Read(b.d, got.Bytes(), y)
			require.Equal(b.t, []float32{3, 8, 8, 3}, []float32{got.F32()[99], got.F32()[100],
				got.F32()[199],
				got.F32()[200]})
			b.holds(8, part)
		},
		"behind calls that are late": func(b *bench) {
			a := b.make(b.host, elements)
			x := b.device(1)
			b.f.calls.late = true
			b.fill(x, 2)
			b.d.Copy(a, x)
			b.out().until(len(b.out().items))
			b.holds(2, a)
		},
	})
}

// TestLandingSizes: a copy back lands in memory that another has left if that is as large, and at most twice.
func TestLandingSizes(t *testing.T) {
	for _, x := range []struct {
		left, size int
		taken      bool
	}{{64, 64, true}, {128, 64, true}, {192, 64, false}, {64, 128, false}} {
		b := newBench(t)
		rows := func(n int) *tensor.Tensor { return b.make(b.host, n) }
		b.fetch(rows(x.left)).Release()
		require.Len(t, b.d.landings, 1)
		y := b.fetch(rows(x.size))
		require.Len(t, b.d.landings, map[bool]int{true: 0, false: 1}[x.taken], "%v", x)
		y.Release()
	}
}

// TestParkedMemory: pinned memory is taken in lots, or as much as a tensor needs, and given back with the
// device; what cannot be pinned is an error, and so is an engine that is not there.
func TestParkedMemory(t *testing.T) {
	b := newBench(t)
	again, err := b.d.Parking()
	require.NoError(t, err)
	require.Equal(t, "host memory beside fake memory", again.Space())
	require.Equal(t, 2, b.f.engines, "the same engines")
	x, y := b.make(b.host, 100), b.make(b.host, 100)
	require.Equal(t, 1, b.f.pins)
	x.Release()
	z := b.make(b.host, lotBytes/4+1)
	require.Equal(t, 2, b.f.pins)
	hx, _ := y.Storage()
	require.Zero(t, hx.(*slot).from%alignBytes)
	require.Equal(t, 512, hx.(*slot).size)
	exact, _ := b.make(b.host, 64).Storage()
	require.Equal(t, 256, exact.(*slot).size)
	w := b.make(b.host, 0)
	require.Equal(t, 2, b.f.pins)
	b.f.noPins = true
	_, err = b.host.New("x", tensor.F32, lotBytes/4)
	require.ErrorContains(t, err, "pinned memory for tensors that are offloaded: no memory can be pinned")
	for _, x := range []*tensor.Tensor{y, z, w} {
		x.Release()
	}
	require.NoError(t, b.d.Close())
	require.Zero(t, b.f.pinned)
	require.Zero(t, b.f.engines)
	for n := range 2 {
		f := newFake("fake memory")
		f.noEngine = n + 1
		_, err := New(f, f, Absent{}).Parking()
		require.ErrorContains(t, err, "no further sequence")
		require.Zero(t, f.engines)
	}
}

// TestParkedWhenFull: memory that copies away still read, and landings, are waited for before a device counts as full.
func TestParkedWhenFull(t *testing.T) {
	b := newBench(t)
	const n = 20 << 20
	b.f.room = 3 * 4 * n
	for i := range 8 {
		x, h := b.make(b.pool, n), b.make(b.host, n)
		b.d.Copy(h, x)
		x.Release()
		y := b.fetch(h)
		require.NotPanics(t, func() { y.Release(); h.Release() }, "round %d", i)
	}
	require.Zero(t, b.pool.Live())
	require.LessOrEqual(t, len(b.f.marks), 2*mostLanding)

	b = newBench(t)
	b.f.room = 4 * 4 * n
	y, there := b.make(b.pool, 3*n), b.make(b.host, 3*n)
	b.d.Copy(there, y)
	y.Release()
	require.Len(t, b.d.pending, 1)
	b.make(b.pool, 3*n).Release()
	require.Empty(t, b.d.pending, "what one copy away still reads is waited for")

	b = newBench(t)
	b.f.room = 4 * 4 * n
	b.fetch(b.make(b.host, 3*n)).Release()
	require.Len(t, b.d.landings, 1)
	x := b.make(b.pool, 3*n)
	require.Empty(t, b.d.landings, "a landing is given to who needs it")
	x.Release()
}

// TestParkedMarks: marks are given back, however many copies there are.
func TestParkedMarks(t *testing.T) {
	b := newBench(t)
	b.f.calls.late = true
	for i := range 300 {
		h := b.parked(i)
		x, y := b.fetch(h), b.device(i)
		b.d.Copy(h, x)
		small, there := b.make(b.pool, 64), b.make(b.host, 64)
		b.d.Copy(there, small)
		b.d.Then(func() {})
		for _, t := range []*tensor.Tensor{x, y, h, small, there} {
			t.Release()
		}
		if i%40 == 0 {
			b.d.Sync()
		}
	}
	same, from := b.make(b.host, 64), b.make(b.pool, 64)
	for range 100 {
		b.d.Copy(same, from)
		b.d.Copy(from, same)
	}
	same.Release()
	from.Release()
	done := make(chan bool)
	b.d.Then(func() { close(done) })
	<-done
	b.d.mu.Lock() // the last mark is given back behind the call
	defer b.d.mu.Unlock()
	most := 2*mostLanding + mostPending + ringPieces + 300/40 + 4
	require.LessOrEqual(t, len(b.f.marks), most)
}

// TestCloseParked: a device that is closed waits for copies both ways.
func TestCloseParked(t *testing.T) {
	b := newBench(t)
	x, h := b.device(1), b.parked(2)
	b.in().late, b.out().late, b.f.calls.late = true, true, true
	b.d.Copy(b.make(b.host, elements), x)
	b.fetch(h)
	require.NoError(t, b.d.Close())
	for _, s := range b.f.all {
		require.Equal(t, len(s.items), s.done)
	}
	require.Zero(t, len(b.f.blocks))
	require.True(t, b.f.closed)
	require.NotPanics(t, x.Release, "what comes late is nothing")
	require.NoError(t, b.d.Close())
}
