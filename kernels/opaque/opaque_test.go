package opaque

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/kernelstest"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var long = flag.Bool("long", false, "run the long tier as well")

// every is how many conformance cases there are to one that runs: the device computes with the definition's code.
func every(t *testing.T) int {
	if *long {
		return 1
	}
	t.Log("one case of five, and one of each operation: add -long")
	return 5
}

// TestConformance: the device gives the results that the definition gives.
func TestConformance(t *testing.T) {
	d := New(1)
	defer d.Close()
	pool := tensor.NewPool("device", 0).In(d)
	kernelstest.RunEvery(t, kernelstest.Carried(t, d, pool), every(t))
	d.Sync()
	require.Zero(t, pool.Live())
}

// TestHostCannotRead: whoever reads device memory on the host, or uses what was freed, is told so.
func TestHostCannotRead(t *testing.T) {
	d := New(1)
	defer d.Close()
	x, err := tensor.NewPool("device", 0).In(d).New("x", tensor.F32, 4, 3)
	require.NoError(t, err)
	require.PanicsWithValue(t,
		"tensor: the host reads f32[4 3], which lies in opaque memory: only the device's Read and Write may",
		func() { x.F32() })
	require.Panics(t, func() { x.RowSlice(1, 2).Bytes() })
	want := tensor.Of(tensor.F32, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 4, 3)
	d.Write(x, want.Bytes())
	got := tensor.Make(tensor.F32, 2, 3)
	d.Read(got.Bytes(), x.View(24, tensor.F32, 2, 3))
	require.Equal(t, want.F32()[6:], got.F32())
}

// TestUseAfterFree: a call on memory that was given back before it was issued is a bug of the caller, and
// shows when somebody waits.
func TestUseAfterFree(t *testing.T) {
	d := New(1)
	x, err := tensor.NewPool("device", 0).In(d).New("x", tensor.F32, 4)
	require.NoError(t, err)
	x.Release()
	d.Run(&kernels.Call{Op: kernels.Fill, Out: []*tensor.Tensor{x}})
	require.PanicsWithValue(t, "opaque: f32[4] is used after it was freed", d.Sync)
}
