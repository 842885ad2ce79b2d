package profile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// later is a device that tells when it ran calls when it is asked to stop.
type later struct {
	kernels.Device
	begin func(c *kernels.Call) func(start, end time.Time)
	calls []func(start, end time.Time)
	took  time.Duration
	ago   time.Duration // when it ran them
}

func (d *later) Watch(begin func(c *kernels.Call) func(start, end time.Time)) bool {
	at := time.Now().Add(-d.ago)
	for _, ran := range d.calls {
		ran(at, at.Add(d.took))
		at = at.Add(d.took)
	}
	d.begin, d.calls = begin, nil
	return true
}

func (d *later) Run(c *kernels.Call) {
	if ran := d.begin(c); ran != nil {
		d.calls = append(d.calls, ran)
	}
}

// TestDeviceLane: what a device ran counts when the device ran it, in the phase of the job that issued it.
func TestDeviceLane(t *testing.T) {
	r := New(0)
	l, d := r.Lane("rank 0", 1), &later{took: 20 * time.Millisecond}
	b := l.Wrap(d)
	require.Same(t, d, b, "the rank sees its device")
	x := tensor.Make(tensor.F32, 8)
	call := func() {
		b.Run(&kernels.Call{Op: kernels.Fill, Out: []*tensor.Tensor{x}})
	}
	for step := range int64(2) {
		l.Job(Forward, step+1, call)
		l.Job(Backward, step+1, func() { call(); call() })
		if step == 0 {
			d.ago = time.Second
			d.Watch(l.issued) // the first step has been told of, and is over
			d.ago = 0
		}
	}
	report, ok := r.Report(Peaks{})
	require.True(t, ok)
	require.Nil(t, d.begin, "nobody watches after a report")
	require.Equal(t, 1, report.Steps)
	sum := report.Lanes[0]
	require.InDelta(t, 0.02, sum.Phases[Forward].Seconds, 1e-6)
	require.InDelta(t, 0.04, sum.Phases[Backward].Seconds, 1e-6)
	require.InDelta(t, 0.06, sum.Kernels, 1e-6)
	require.Equal(t, 3, report.Table[0].Calls)
}

// TestDeviceAttention: a device's borders are not read, and stand for sequences of equal length.
func TestDeviceAttention(t *testing.T) {
	q, k := tensor.Make(tensor.F32, 8, 2, 4), tensor.Make(tensor.F32, 12, 2, 4)
	host := tensor.Of(tensor.I32, []int32{0, 4, 8}, 3)
	c := &kernels.Call{Op: kernels.Attention, In: []*tensor.Tensor{q, k, k, host, host}}
	require.Equal(t, []int32{0, 4, 8}, borders(c, 3))
	p := tensor.NewPool("device", 0).In(&apart{})
	there, err := p.New("borders", tensor.I32, 3)
	require.NoError(t, err)
	defer there.Release()
	c.In[3], c.In[4] = there, there
	require.Equal(t, []int32{0, 4, 8}, borders(c, 3))
	require.Equal(t, []int32{0, 6, 12}, borders(c, 4))
	back := &kernels.Call{Op: kernels.AttentionBwd, In: []*tensor.Tensor{q, q, k, k, q, q, there, there}}
	require.Equal(t, []int32{0, 4, 8}, borders(back, 6))
	require.Equal(t, []int32{0, 6, 12}, borders(back, 7))
}

// apart is memory that the host does not reach.
type apart struct{}

func (*apart) Space() string          { return "apart" }
func (*apart) Alloc(int) (any, error) { return 1, nil }
func (*apart) Free(any)               {}
