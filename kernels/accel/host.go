package accel

import (
	"fmt"
	"io"
	"sync"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Absent says what becomes of operations that the device does not have.
type Absent struct {
	Strict bool      // they are an error
	Tell   io.Writer // each is named here once a process
	Open   func() (kernels.Backend, error)
}

var told struct {
	sync.Mutex
	ops map[string]bool
}

// onHost runs a call on the processor: operands are copied there and results back.
func (d *Device) onHost(c *kernels.Call) error {
	if d.absent.Strict {
		return fmt.Errorf("the device does not have this operation for %v, and operations of the "+
			"processor are not wanted", c.In)
	}
	d.tell(c.Op)
	err := d.settle()
	if d.host == nil {
		if d.host, err = d.absent.Open(); err != nil {
			return err
		}
	}
	b := d.host
	type place struct {
		addr uint64
		size int
	}
	at := map[place][]byte{} // operands that share storage share it there too
	here := func(l []*tensor.Tensor) (out []*tensor.Tensor) {
		for _, t := range l {
			if t == nil || t.OnHost() {
				out = append(out, t)
				continue
			}
			p := place{address(t), t.Size()}
			if at[p] == nil {
				at[p] = tensor.Make(t.DType, t.Shape...).Bytes()
				if err == nil {
					err = d.ring.read(at[p], p.addr)
				}
			}
			out = append(out, tensor.Over(t.DType, at[p], t.Shape...))
		}
		return out
	}
	h := &kernels.Call{Op: c.Op, Attr: c.Attr, In: here(c.In), Out: here(c.Out)}
	if err != nil {
		return err
	}
	b.Run(h)
	b.Sync()
	for i, t := range c.Out {
		if t == nil {
			continue
		}
		if err := d.ring.write(address(t), h.Out[i].Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// tell names an operation that runs on the processor, once a process and kind of device.
func (d *Device) tell(op kernels.Op) {
	told.Lock()
	defer told.Unlock()
	key := d.drv.Space() + " " + string(op)
	if told.ops[key] || d.absent.Tell == nil {
		return
	}
	if told.ops == nil {
		told.ops = map[string]bool{}
	}
	told.ops[key] = true
	fmt.Fprintf(d.absent.Tell,
		"%s: operation %s runs on the processor, with copies there and back: the device does not have it\n",
		d.drv.Name(), op)
}
