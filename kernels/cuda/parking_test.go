//go:build cuda

package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// between gives a pool on a device and one in the host memory beside it, and what makes a tensor of 5,000
// numbers [5000] f32 in one of them and fills it.
func between(t *testing.T, d *accel.Device) (p, host *tensor.Pool, make func(*tensor.Pool) *tensor.Tensor,
	fill func(x *tensor.Tensor, v int)) {
	p = tensor.NewPool("device", 0).In(d)
	m, err := d.Parking()
	require.NoError(t, err)
	host = tensor.NewPool("parked", 0).In(m)
	make = func(p *tensor.Pool) *tensor.Tensor {
		x, err := p.New("x", tensor.F32, 5000)
		require.NoError(t, err)
		return x
	}
	fill = func(x *tensor.Tensor, v int) {
		d.Run(&kernels.Call{Op: kernels.Fill, Out: []*tensor.Tensor{x},
			Attr: kernels.Attr{F: [2]float64{float64(v)}}})
	}
	return p, host, make, fill
}

// park puts numbers on a device, copies them to the host beside its calls, gives their memory to others, and
// copies them back; it returns how many of 40 came back as they were.
func park(t *testing.T, d *accel.Device) (right int) {
	p, host, make, fill := between(t, d)
	var away []*tensor.Tensor
	for i := range 40 {
		x := make(p)
		fill(x, i+1)
		h := make(host)
		d.Copy(h, x)
		if i%4 == 0 {
			fill(x, -1) // changed while a copy away may still read it
		}
		x.Release()
		away = append(away, h)
	}
	sum := make(p)
	defer sum.Release()
	for i, h := range away {
		x := make(p)
		d.Copy(x, h)
		h.Release()
		fill(sum, 7) // a call that does not use it
		d.Run(&kernels.Call{Op: kernels.Cast, In: []*tensor.Tensor{x}, Out: []*tensor.Tensor{sum}})
		x.Release()
		got := kernels.Host(d, sum).F32()
		if got[0] == float32(i+1) && got[2500] == got[0] && got[4999] == got[0] {
			right++
		}
	}
	return right
}

// flow does the same without the host waiting for anything in between: copies back at once, places on the host that are
// used again while a copy back reads them, and landings that calls which were issued still read.
func flow(t *testing.T, d *accel.Device) (right int) {
	p, host, make, fill := between(t, d)
	other, kept, slow := make(p), make(host), make(p)
	fill(other, -5)
	d.Copy(kept, other)
	var outs []*tensor.Tensor
	for i := range 20 {
		a, h := make(p), make(host)
		fill(a, i+1)
		d.Copy(h, a)
		a.Release()
		for range 4 { // copies back lag behind
			d.Copy(slow, kept)
		}
		b := make(p)
		d.Copy(b, h)
		h.Release()
		again := make(host)
		d.Copy(again, other)
		again.Release()
		out := make(p)
		d.Run(&kernels.Call{Op: kernels.Cast, In: []*tensor.Tensor{b}, Out: []*tensor.Tensor{out}})
		b.Release()
		outs = append(outs, out)
	}
	var away []*tensor.Tensor
	for i := range 20 {
		h := make(host)
		fill(other, 21+i)
		d.Copy(h, other)
		away = append(away, h)
	}
	d.Sync()
	for _, h := range away { // each lands where calls under way still read the one before
		b, out := make(p), make(p)
		d.Copy(b, h)
		h.Release()
		d.Run(&kernels.Call{Op: kernels.Cast, In: []*tensor.Tensor{b}, Out: []*tensor.Tensor{out}})
		b.Release()
		outs = append(outs, out)
	}
	for i, o := range outs {
		got := kernels.Host(d, o).F32()
		if got[0] == float32(i+1) && got[2500] == got[0] && got[4999] == got[0] {
			right++
		}
		o.Release()
	}
	for _, x := range []*tensor.Tensor{other, kept, slow} {
		x.Release()
	}
	return right
}

// TestParking: tensors that are parked on the host come back as they were, whatever the streams of copies
// and calls are delayed by; where streams do not wait for each other's events, they do not.
func TestParking(t *testing.T) {
	d, e := emulated(t, 0, strict)
	e.Set(t, "jitter", 300, 0)
	require.Equal(t, 40, park(t, d))
	require.Equal(t, 40, park(t, d), "in memory that was used before")
	require.Equal(t, 40, flow(t, d))
	require.Equal(t, 40, flow(t, d), "in memory that was used before")
	e.Set(t, "waits", 0, 1)
	require.Less(t, park(t, d), 40, "events are left out")
}

// TestParkingWhenFull: memory that copies away still read is waited for before a device counts as full.
func TestParkingWhenFull(t *testing.T) {
	d, e := emulated(t, 0, strict)
	e.Set(t, "memory", 300<<20, 1<<30)
	e.Set(t, "jitter", 100, 0)
	p := tensor.NewPool("device", 0).In(d)
	m, err := d.Parking()
	require.NoError(t, err)
	host := tensor.NewPool("parked", 0).In(m)
	for i := range 20 {
		x, err := p.New("x", tensor.F32, 20<<20) // 80 MiB: three fit
		require.NoError(t, err, "round %d", i)
		h, err := host.New("h", tensor.F32, 20<<20)
		require.NoError(t, err)
		d.Copy(h, x)
		x.Release()
		y, err := p.New("y", tensor.F32, 20<<20)
		require.NoError(t, err, "round %d", i)
		d.Copy(y, h)
		h.Release()
		y.Release()
	}
	require.Zero(t, p.Live())
}
