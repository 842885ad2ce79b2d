package opaque

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/kernelstest"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// carried runs calls on host tensors through a device: operands are written, results read back.
type carried struct {
	*Device
	pool *tensor.Pool
	t    *testing.T
}

func (c carried) place(t *tensor.Tensor, at map[*tensor.Tensor]*tensor.Tensor) *tensor.Tensor {
	if t == nil {
		return nil
	}
	if d := at[t]; d != nil {
		return d
	}
	for u, d := range at { // the same storage in another shape
		if a, b := t.Bytes(), u.Bytes(); len(a) > 0 && len(a) == len(b) && &a[0] == &b[0] {
			at[t] = d.View(0, t.DType, t.Shape...)
			return at[t]
		}
	}
	d, err := c.pool.New("operand", t.DType, t.Shape...)
	require.NoError(c.t, err)
	c.Write(d, t.Bytes())
	at[t] = d
	return d
}

func (c carried) call(k *kernels.Call, at map[*tensor.Tensor]*tensor.Tensor) *kernels.Call {
	out := &kernels.Call{Op: k.Op, Attr: k.Attr}
	for _, t := range k.In {
		out.In = append(out.In, c.place(t, at))
	}
	for _, t := range k.Out {
		out.Out = append(out.Out, c.place(t, at))
	}
	for _, e := range k.Then {
		out.Then = append(out.Then, c.call(e, at))
	}
	return out
}

func (c carried) back(k *kernels.Call, at map[*tensor.Tensor]*tensor.Tensor) {
	for _, t := range k.Out {
		if t != nil {
			c.Read(t.Bytes(), at[t])
		}
	}
	for _, e := range k.Then {
		c.back(e, at)
	}
}

func (c carried) Run(k *kernels.Call) {
	at := map[*tensor.Tensor]*tensor.Tensor{}
	defer func() {
		for _, t := range at {
			t.Release()
		}
	}()
	d := c.call(k, at)
	c.Device.Run(d)
	c.back(k, at)
}

// TestConformance: the device gives the results that the definition gives.
func TestConformance(t *testing.T) {
	d := New(1)
	defer d.Close()
	pool := tensor.NewPool("device", 0).In(d)
	kernelstest.Run(t, carried{d, pool, t})
	d.Sync()
	require.Zero(t, pool.Live())
}

// TestHostCannotRead: whoever reads device memory on the host, or uses what was freed, is told so.
func TestHostCannotRead(t *testing.T) {
	d := New(1)
	defer d.Close()
	x, err := tensor.NewPool("device", 0).In(d).New("x", tensor.F32, 4, 3)
	require.NoError(t, err)
	require.PanicsWithValue(t, "tensor: the host reads f32[4 3], which lies in opaque memory: only the device's Read and Write may", func() { x.F32() })
	require.Panics(t, func() { x.RowSlice(1, 2).Bytes() })
	want := tensor.Of(tensor.F32, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 4, 3)
	d.Write(x, want.Bytes())
	got := tensor.Make(tensor.F32, 2, 3)
	d.Read(got.Bytes(), x.View(24, tensor.F32, 2, 3))
	require.Equal(t, want.F32()[6:], got.F32())
}

// TestUseAfterFree: a call on memory that was given back before it was issued is a bug of the caller, and shows when somebody waits.
func TestUseAfterFree(t *testing.T) {
	d := New(1)
	x, err := tensor.NewPool("device", 0).In(d).New("x", tensor.F32, 4)
	require.NoError(t, err)
	x.Release()
	d.Run(&kernels.Call{Op: kernels.Fill, Out: []*tensor.Tensor{x}})
	require.PanicsWithValue(t, "opaque: f32[4] is used after it was freed", d.Sync)
}
