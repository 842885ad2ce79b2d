package kernelstest

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// carried runs calls on host tensors through a device: operands are written, results read back.
type carried struct {
	kernels.Device
	pool *tensor.Pool
	t    testing.TB
}

// Carried is a backend for Run that has its operands copied to a device, each as far from an aligned
// address as on the host and among bytes that must not change, and results back.
func Carried(t testing.TB, d kernels.Device, pool *tensor.Pool) kernels.Backend {
	return carried{d, pool, t}
}

// margin is how many bytes lie around an operand on the device.
const margin = tensor.Align

// parcel is an operand on the device.
type parcel struct {
	around *tensor.Tensor // the bytes before, of and behind it
	from   int
	shape  map[*tensor.Tensor]*tensor.Tensor // views of it
}

// parcels are a call's operands by where they lie on the host: what shares storage there does so on the device.
type parcels map[storage]*parcel

type storage struct {
	at   *byte
	size int
}

func storageOf(t *tensor.Tensor) storage { return storage{unsafe.SliceData(t.Bytes()), t.Size()} }

func (c carried) place(t *tensor.Tensor, at parcels) *tensor.Tensor {
	if t == nil {
		return nil
	}
	p := at[storageOf(t)]
	if p == nil {
		p = c.send(t)
		at[storageOf(t)] = p
	}
	if p.shape[t] == nil {
		p.shape[t] = p.around.View(p.from, t.DType, t.Shape...)
	}
	return p.shape[t]
}

// send copies an operand to the device.
func (c carried) send(t *tensor.Tensor) *parcel {
	p := &parcel{from: margin + int(uintptr(unsafe.Pointer(unsafe.SliceData(t.Bytes())))%margin)/t.DType.Size()*
		t.DType.Size(), shape: map[*tensor.Tensor]*tensor.Tensor{}}
	if p.from > margin {
		p.from -= margin // as far behind a multiple of the alignment as on the host
	}
	around, err := c.pool.New("operand", tensor.U8, t.Size()+2*margin)
	require.NoError(c.t, err)
	p.around = around
	image := bytes.Repeat([]byte{0xff}, around.Size())
	copy(image[p.from:], t.Bytes())
	c.Write(around, image)
	return p
}

func (c carried) call(k *kernels.Call, at parcels) *kernels.Call {
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

// Run implements kernels.Backend. All operands are compared and copied back, so that a change to an input shows as one.
func (c carried) Run(k *kernels.Call) {
	if kernels.Check(k) != nil {
		c.Device.Run(k) // panics
	}
	at := parcels{}
	d := c.call(k, at)
	c.Device.Run(d)
	c.back(k, at)
	for _, p := range at {
		for _, v := range p.shape {
			v.Release()
		}
		p.around.Release()
	}
}

// back reads every operand, and holds that nothing around it has changed.
func (c carried) back(k *kernels.Call, at parcels) {
	for _, l := range [][]*tensor.Tensor{k.In, k.Out} {
		for _, t := range l {
			if t == nil || t.Size() == 0 {
				continue
			}
			p := at[storageOf(t)]
			image := make([]byte, p.around.Size())
			c.Read(image, p.around)
			copy(t.Bytes(), image[p.from:p.from+t.Size()])
			clear(image[p.from : p.from+t.Size()])
			for i, b := range image {
				if b != 0xff && (i < p.from || i >= p.from+t.Size()) {
					c.t.Fatalf("%s changed byte %d of the %d around %v at %d", k.Op, i, len(image), t, p.from)
				}
			}
		}
	}
	for _, e := range k.Then {
		c.back(e, at)
	}
}
