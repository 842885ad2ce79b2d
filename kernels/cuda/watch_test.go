//go:build cuda

package cuda

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestWatch: a device tells when it ran each call, in their order, and not before the device did.
func TestWatch(t *testing.T) {
	d, _ := emulated(t, 0, strict)
	p := tensor.NewPool("device", 0).In(d)
	x, err := p.New("x", tensor.F32, 1<<16)
	require.NoError(t, err)
	defer x.Release()
	type ran struct {
		op         kernels.Op
		start, end time.Time
	}
	var all []ran
	began := time.Now()
	require.True(t, d.Watch(func(c *kernels.Call) func(start, end time.Time) {
		if c.Op == kernels.AddTo {
			return nil // nobody asks for it
		}
		op := c.Op
		return func(start, end time.Time) { all = append(all, ran{op, start, end}) }
	}))
	fill := kernels.Call{Op: kernels.Fill, Out: []*tensor.Tensor{x}, Attr: kernels.Attr{F: [2]float64{1}}}
	for range 3 {
		d.Run(&fill)
	}
	d.Run(&kernels.Call{Op: kernels.AddTo, In: []*tensor.Tensor{x}, Out: []*tensor.Tensor{x}})
	d.Watch(nil)
	d.Run(&fill)
	d.Sync()
	require.Len(t, all, 3)
	before := began
	for _, r := range all {
		require.Equal(t, kernels.Fill, r.op)
		require.False(t, r.start.Before(before.Add(-time.Microsecond)), "%v before %v", r.start, before)
		require.Greater(t, r.end.Sub(r.start), time.Microsecond)
		before = r.end
	}
	require.False(t, before.After(time.Now()))
}
