//go:build cu && cuda

package gorgonia

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
	"github.com/lfactor/lfactor/kernels/cuda"
	"github.com/lfactor/lfactor/kernels/kernelstest"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func opened(t *testing.T, index int) *accel.Device {
	t.Helper()
	l, err := cuda.LoadFrom(os.Getenv(cuda.LibraryVariable))
	require.NoError(t, err)
	d, err := New(l, index, accel.Absent{Open: func() (kernels.Backend, error) { return ref.New(), nil }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// TestMemoryAndCopies: what is larger than all staging memory comes back as it was.
func TestMemoryAndCopies(t *testing.T) {
	d := opened(t, 0)
	require.Equal(t, "cuda:0 (emulated device) by gorgonia.org/cu", d.Name())
	h := tensor.Make(tensor.F32, 3<<20+5)
	for i := range h.F32() {
		h.F32()[i] = float32(i % 1013)
	}
	p := tensor.NewPool("device", 0).In(d)
	x, err := p.New("x", h.DType, h.Shape...)
	require.NoError(t, err)
	y, err := p.New("y", h.DType, h.Shape...)
	require.NoError(t, err)
	d.Write(x, h.Bytes())
	d.Copy(y, x)
	require.Equal(t, h.F32(), kernels.Host(d, y).F32())
	x.Release()
	y.Release()
	_, err = p.New("too large", tensor.F32, 1<<30)
	require.ErrorContains(t, err, "OutOfMemory")
}

// TestStreamsAndEvents: a device waits for another's work by its event.
func TestStreamsAndEvents(t *testing.T) {
	a, b := opened(t, 0), opened(t, 1)
	x, err := tensor.NewPool("a", 0).In(a).New("x", tensor.F32, 64)
	require.NoError(t, err)
	y, err := tensor.NewPool("b", 0).In(b).New("y", tensor.F32, 64)
	require.NoError(t, err)
	for i := range 20 {
		a.Run(&kernels.Call{Op: kernels.Fill, Out: []*tensor.Tensor{x},
			Attr: kernels.Attr{F: [2]float64{float64(i + 1)}}})
		b.Await(a.Record())
		b.Copy(y, x)
		a.Await(b.Record())
		require.Equal(t, float32(i+1), kernels.Host(b, y).F32()[63])
	}
	x.Release()
	y.Release()
}

// TestModulesAndLaunches: all kernels are found, and give what the definition gives.
func TestModulesAndLaunches(t *testing.T) {
	d := opened(t, 0)
	p := tensor.NewPool("device", 0).In(d)
	b := kernelstest.Carried(t, d, p)
	n := 0
	kernelstest.Calls(func(name string, c *kernels.Call) {
		b.Run(c)
		n++
	})
	require.Greater(t, n, 100)
	d.Sync()
	require.Zero(t, p.Live())
	x, y, want := tensor.Make(tensor.F32, 4, 300), tensor.Make(tensor.F32, 4, 300),
		tensor.Make(tensor.F32, 4, 300)
	for i := range x.F32() {
		x.F32()[i] = float32(i%17) - 8
	}
	call := func(out *tensor.Tensor) *kernels.Call {
		return &kernels.Call{Op: kernels.SwiGLU, In: []*tensor.Tensor{x, x}, Out: []*tensor.Tensor{out}}
	}
	b.Run(call(y))
	ref.New().Run(call(want))
	require.InDeltaSlice(t, want.F32(), y.F32(), 1e-5)
}
