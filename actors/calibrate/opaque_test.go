package calibrate

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/opaque"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/topology/cost"
)

// counting is a device that counts copies, says how much memory it has, and may have none left.
type counting struct {
	*opaque.Device
	room, left                     int64
	written, read, copied, awaited int
}

func (c *counting) Room() int64 { return c.room }

func (c *counting) Alloc(n int) (any, error) {
	if c.left -= int64(n); c.left < 0 {
		return nil, errors.New("no memory is left")
	}
	return c.Device.Alloc(n)
}

func (c *counting) Write(t *tensor.Tensor, src []byte) {
	c.written += len(src)
	c.Device.Write(t, src)
}

func (c *counting) Read(dst []byte, t *tensor.Tensor) {
	c.read += len(dst)
	c.Device.Read(dst, t)
}

func (c *counting) Copy(dst, src *tensor.Tensor) {
	c.copied += len(dst.Shape) * dst.Len() * 4
	c.Device.Copy(dst, src)
}

func (c *counting) Sync() { c.awaited++; c.Device.Sync() }

// TestMeasureDevice: a device's name, its memory where it says how much, and three copies of 32 MiB each way
// and on the device, each to its end; a device without room for them is an error.
func TestMeasureDevice(t *testing.T) {
	for room, want := range map[int64]float64{7 << 30: 7 << 30, 1: 1, 0: 5, -1: 5} {
		d := &counting{Device: opaque.New(1), room: room, left: 64 << 20}
		m := &cost.Machine{Memory: 5, Name: "before"}
		require.NoError(t, measureDevice(m, d))
		require.Equal(t, want, m.Memory)
		require.Equal(t, "opaque", m.Name)
		require.Equal(t, []int{96 << 20, 96 << 20, 96 << 20, 6}, []int{d.written, d.read, d.copied,
			d.awaited})
		require.Greater(t, m.Copy, 1e7)
		require.Less(t, m.Copy, 1e12)
		require.Greater(t, m.Local.PerByte, 1e-12)
		require.Less(t, m.Local.PerByte, 1e-7)
		require.NoError(t, d.Close())
	}
	for _, left := range []int64{0, 63 << 20} {
		d := &counting{Device: opaque.New(1), left: left}
		require.ErrorContains(t, measureDevice(&cost.Machine{}, d), "no memory is left")
		require.NoError(t, d.Close())
	}
}

// TestCalibrateOpaque: segments of a device are timed to their last call, and the machine has its name.
func TestCalibrateOpaque(t *testing.T) {
	_, _, err := calibrate(&counting{Device: opaque.New(1)}, []int{32}, 8, tensor.F32)
	if err != nil && !strings.Contains(err.Error(), "no memory is left") {
		described(t, err)
	}
	require.Error(t, err)
	d := &counting{Device: opaque.New(1), left: 1 << 40}
	m, fit, err := calibrate(d, []int{32}, 8, tensor.F32)
	described(t, err)
	require.Equal(t, 2, fit.Segments)
	require.Equal(t, "opaque", m.Name)
	require.GreaterOrEqual(t, d.awaited, 12+6, "each job, and each copy")
	require.NoError(t, d.Close())
}

var _ kernels.Sized = (*counting)(nil)
