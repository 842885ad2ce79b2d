package host

import (
	"sync/atomic"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Pack is the payload of a message: tensors in order, with names where they have some. The last release of
// the pack releases its tensors.
type Pack struct {
	Names   []string
	Tensors []*tensor.Tensor
	refs    atomic.Int32
	// when a device has finished what it has issued for the tensors, nil where they are ready
	ready kernels.Event
}

var _ actors.Payload = (*Pack)(nil)

// NewPack takes over the references to the tensors.
func NewPack(names []string, ts ...*tensor.Tensor) *Pack {
	p := &Pack{Names: names, Tensors: ts}
	p.refs.Store(1)
	return p
}

// Host gives the tensors with their contents on the host, each with a reference of its own: what leaves the
// process.
func (p *Pack) Host() []*tensor.Tensor {
	if p.ready != nil {
		p.ready.Wait()
	}
	out := make([]*tensor.Tensor, len(p.Tensors))
	for i, t := range p.Tensors {
		out[i] = kernels.Host(nil, t)
	}
	return out
}

// Bytes is the size of all tensors.
func (p *Pack) Bytes() (n int64) {
	for _, t := range p.Tensors {
		n += int64(t.Size())
	}
	return
}

// Retain adds a reference.
func (p *Pack) Retain() { p.refs.Add(1) }

// Release drops one.
func (p *Pack) Release() {
	switch n := p.refs.Add(-1); {
	case n == 0:
		for _, t := range p.Tensors {
			t.Release()
		}
	case n < 0:
		panic("host: payload released twice")
	}
}

// one takes the only tensor of a payload and drops the payload: the caller owns the tensor's reference.
func one(p actors.Payload) *tensor.Tensor {
	k := p.(*Pack)
	t := k.Tensors[0].Retain()
	k.Release()
	return t
}

// all takes the tensors of a payload and drops the payload: the caller owns a reference to each.
func all(p actors.Payload) []*tensor.Tensor {
	k := p.(*Pack)
	out := retained(k.Tensors)
	k.Release()
	return out
}
