package host

import (
	"sync/atomic"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Pack is the payload of a message: tensors in order, with names where they have some. The last release of the pack
// releases its tensors.
type Pack struct {
	Names   []string
	Tensors []*tensor.Tensor
	refs    atomic.Int32
}

var _ actors.Payload = (*Pack)(nil)

// NewPack takes over the references to the tensors.
func NewPack(names []string, ts ...*tensor.Tensor) *Pack {
	p := &Pack{Names: names, Tensors: ts}
	p.refs.Store(1)
	return p
}

// Bytes is the size of all tensors.
func (p *Pack) Bytes() (n int64) {
	for _, t := range p.Tensors {
		n += int64(len(t.Bytes()))
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
