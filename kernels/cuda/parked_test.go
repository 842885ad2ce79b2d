//go:build cuda

package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// parked is a device with what makes one of its sequences late: the others then run ahead of it, as far as
// they are let.
type parked struct {
	t                *testing.T
	d                *accel.Device
	pool, host       *tensor.Pool
	make             func(*tensor.Pool) *tensor.Tensor
	fill             func(x *tensor.Tensor, v int)
	big, back, there *tensor.Tensor // 24 MiB: a copy takes some milliseconds
}

func newParked(t *testing.T) *parked {
	d, _ := emulated(t, 0, strict)
	p := &parked{t: t, d: d}
	p.pool, p.host, p.make, p.fill = between(t, d)
	for _, x := range []struct {
		t **tensor.Tensor
		p *tensor.Pool
	}{{&p.big, p.pool}, {&p.back, p.pool}, {&p.there, p.host}} {
		var err error
		*x.t, err = x.p.New("big", tensor.F32, 6<<20)
		require.NoError(t, err)
	}
	p.fill(p.big, 1)
	d.Copy(p.there, p.big)
	d.Copy(p.back, p.there)
	d.Sync()
	return p
}

func (p *parked) lateCalls() { p.fill(p.big, 1) }
func (p *parked) lateAway()  { p.d.Copy(p.there, p.big) }
func (p *parked) lateBack()  { p.d.Copy(p.back, p.there) }

// device is a tensor on the device that is filled with v, parked one on the host.
func (p *parked) device(v int) *tensor.Tensor {
	x := p.make(p.pool)
	p.fill(x, v)
	return x
}

func (p *parked) parked(v int) *tensor.Tensor {
	h := p.make(p.host)
	kernels.Write(h, values(v))
	return h
}

// values are the bytes of 5,000 numbers.
func values(v int) []byte {
	x := tensor.Make(tensor.F32, 5000)
	for i := range x.F32() {
		x.F32()[i] = float32(v)
	}
	return x.Bytes()
}

// fetch copies a parked tensor to the device.
func (p *parked) fetch(h *tensor.Tensor) *tensor.Tensor {
	x := p.make(p.pool)
	p.d.Copy(x, h)
	return x
}

// copied is the result of a call that reads x.
func (p *parked) copied(x *tensor.Tensor) *tensor.Tensor {
	out := p.make(p.pool)
	p.d.Run(&kernels.Call{Op: kernels.Cast, In: []*tensor.Tensor{x}, Out: []*tensor.Tensor{out}})
	return out
}

func (p *parked) holds(v int, x *tensor.Tensor) {
	p.t.Helper()
	got := make([]byte, x.Size())
	kernels.Read(p.d, got, x)
	require.Equal(p.t, values(v), got)
}

// late runs each test on a device of its own.
func late(t *testing.T, tests map[string]func(p *parked)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(newParked(t)) })
	}
}

// TestParkedLandings: each thing that a copy to the device, beside its calls, has to wait for before it uses
// memory again is late once, and is waited for.
func TestParkedLandings(t *testing.T) {
	late(t, map[string]func(p *parked){
		"a landing that calls still read": func(p *parked) {
			a, b := p.parked(1), p.parked(2)
			x := p.fetch(a)
			p.d.Sync()
			p.lateCalls()
			out := p.copied(x)
			x.Release()
			y := p.fetch(b)
			p.holds(1, out)
			p.holds(2, y)
		},
		"a landing that a copy away still reads": func(p *parked) {
			a, b, to := p.parked(1), p.parked(2), p.parked(0)
			x := p.fetch(a)
			p.d.Sync()
			p.lateAway()
			p.d.Copy(to, x)
			x.Release()
			y := p.fetch(b)
			p.holds(1, to)
			p.holds(2, y)
		},
		"a landing that is given back while a copy away reads it": func(p *parked) {
			var xs, to []*tensor.Tensor
			for i := range 40 {
				xs, to = append(xs, p.fetch(p.parked(i))), append(to, p.parked(-1))
			}
			p.d.Sync()
			p.lateAway()
			for i, x := range xs {
				p.d.Copy(to[i], x)
			}
			for _, x := range xs {
				x.Release()
			}
			for range 8 { // in the memory of those that were given back first
				p.device(99)
			}
			for i := range to {
				p.holds(i, to[i])
			}
		},
	})
}

// TestParkedPlaces: the same of places on the host.
func TestParkedPlaces(t *testing.T) {
	late(t, map[string]func(p *parked){
		"a place that a copy back still reads": func(p *parked) {
			a, y := p.parked(1), p.device(9)
			p.d.Sync()
			p.lateBack()
			x := p.fetch(a)
			p.d.Copy(a, y)
			p.holds(1, x)
			p.holds(9, a)
		},
		"a place that a copy back of another still reads": func(p *parked) {
			a, y := p.parked(1), p.device(9)
			p.d.Sync()
			p.lateBack()
			x := p.fetch(a)
			a.Release()
			b := p.make(p.host)
			p.d.Copy(b, y)
			p.holds(1, x)
			p.holds(9, b)
		},
		"a copy away that is not there yet": func(p *parked) {
			a, y := p.make(p.host), p.device(3)
			p.lateAway()
			p.d.Copy(a, y)
			x := p.fetch(a)
			p.holds(3, x)
		},
		"a copy away that the host reads": func(p *parked) {
			a, y := p.make(p.host), p.device(3)
			p.lateAway()
			p.d.Copy(a, y)
			p.holds(3, a)
		},
		"a copy away before what the host writes": func(p *parked) {
			a, y := p.make(p.host), p.device(3)
			p.lateAway()
			p.d.Copy(a, y)
			kernels.Write(a, values(5))
			p.holds(5, p.fetch(a))
		},
		"a copy back of what the host writes over": func(p *parked) {
			a := p.parked(3)
			p.lateBack()
			x := p.fetch(a)
			kernels.Write(a, values(5))
			p.holds(3, x)
			p.holds(5, a)
		},
		"a copy back from a place that the host fills anew": func(p *parked) {
			a := p.parked(3)
			p.lateBack()
			x := p.fetch(a)
			a.Release()
			b := p.parked(5)
			p.holds(3, x)
			p.holds(5, b)
		},
	})
}
