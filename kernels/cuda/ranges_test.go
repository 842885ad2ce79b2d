//go:build cuda

package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cuda/emulate"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestRanges: each operation is a range of NVTX's, which ends on the thread that began it, where a library is
// named, and none is where no tool watches.
func TestRanges(t *testing.T) {
	e := emulate.New(t).Copy(t)
	t.Setenv(RangesVariable, "")
	t.Setenv(injection, "")
	r, err := FindRanges()
	require.NoError(t, err)
	require.Nil(t, r)
	require.Contains(t, describeRanges(), "none watches this process")
	t.Setenv(RangesVariable, "libm.so.6")
	_, err = FindRanges()
	require.ErrorContains(t, err, "libm.so.6 has no nvtxRange")
	t.Setenv(RangesVariable, e.Path)
	require.Equal(t, "operations have ranges for NVIDIA's tools by "+e.Path, describeRanges())
	r, err = FindRanges()
	require.NoError(t, err)
	l, err := LoadFrom(e.Path)
	require.NoError(t, err)
	d, err := l.New(0, Settings{Absent: strict, Ranges: r})
	require.NoError(t, err)
	p := tensor.NewPool("device", 0).In(d)
	x, err := p.New("x", tensor.F32, 8)
	require.NoError(t, err)
	for range 3 {
		d.Run(&kernels.Call{Op: kernels.Fill, Out: []*tensor.Tensor{x}})
	}
	d.Sync()
	require.Equal(t, 3, e.Ranges())
	x.Release()
	require.NoError(t, d.Close())
}

// TestPeers: devices of a process reach each other's memory both ways, once each, where the driver has a way.
func TestPeers(t *testing.T) {
	for devices, ways := range map[int64]int{2: 2, 3: 2} {
		e := emulate.New(t).Copy(t)
		e.Set(t, "devices", devices, 2)
		l, err := LoadFrom(e.Path)
		require.NoError(t, err)
		for i := range int(devices) + 1 { // the first device has two ranks
			d, err := l.New(i%int(devices), Settings{Absent: strict})
			require.NoError(t, err)
			defer d.Close()
		}
		require.Equal(t, ways, e.Peers(), "of %d devices", devices)
	}
}
