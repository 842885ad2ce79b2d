package accel

import (
	"runtime"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var _ kernels.Joiner = (*Device)(nil)

// Joins implements kernels.Joiner.
func (d *Device) Joins() bool {
	j, ok := d.drv.(Joining)
	return ok && j.Joins()
}

// ChannelID implements kernels.Joiner.
func (d *Device) ChannelID() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.drv.(Joining).ChannelID()
}

// Channel implements kernels.Joiner.
func (d *Device) Channel(id []byte, sends bool) (kernels.Channel, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, err := d.drv.(Joining).Channel(id, sends)
	if err != nil {
		return nil, err
	}
	return &channel{d, c}, nil
}

// channel moves tensors by a driver's channel.
type channel struct {
	d *Device
	c Channel
}

// Send implements kernels.Channel.
func (c *channel) Send(ts []*tensor.Tensor, behind kernels.Event) error {
	e, ok := behind.(*event)
	if !ok {
		e = c.d.Record().(*event) // behind whatever has made the tensors
	}
	defer runtime.KeepAlive(e)
	return c.c.Move(partsOf(ts), e.m)
}

// Receive implements kernels.Channel. Memory that was given back may still be used by calls that were issued before.
func (c *channel) Receive(ts []*tensor.Tensor) error {
	e := c.d.Record().(*event)
	defer runtime.KeepAlive(e)
	return c.c.Move(partsOf(ts), e.m)
}

// Abort implements kernels.Channel.
func (c *channel) Abort() { c.c.Abort() }

func partsOf(ts []*tensor.Tensor) (parts []Part) {
	for _, t := range ts {
		if n := t.Size(); n > 0 {
			parts = append(parts, Part{address(t), n})
		}
	}
	return parts
}
