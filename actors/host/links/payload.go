package links

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/wire"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Pack is the payload of a message: tensors in order, with names where they have some. The last release of
// the pack releases its tensors.
type Pack struct {
	Names   []string
	Tensors []*tensor.Tensor
	refs    atomic.Int32
	// Ready comes when a device has finished what it has issued for the tensors; nil where they are ready.
	Ready kernels.Event
}

var _ actors.Payload = (*Pack)(nil)

// NewPack takes over the references to the tensors.
func NewPack(names []string, ts ...*tensor.Tensor) *Pack {
	p := &Pack{Names: names, Tensors: ts}
	p.refs.Store(1)
	return p
}

// Host gives the tensors with their contents on the host, each with a reference of its own: what leaves the process.
func (p *Pack) Host() []*tensor.Tensor {
	if p.Ready != nil {
		p.Ready.Wait()
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
		panic("links: payload released twice")
	}
}

// Release drops the payloads of a message that goes nowhere.
func Release(m actors.Message) {
	if m.Payload != nil {
		m.Payload.Release()
	}
	for _, o := range m.Out {
		if o.Payload != nil {
			o.Payload.Release()
		}
	}
}

// RecordOf is a message as it is written down, and what to call when it was.
func RecordOf(m *actors.Message, to actors.Ref, seq uint64) (r *wire.Record, done func()) {
	r, done = &wire.Record{Message: *m, To: to, Seq: seq}, func() {}
	if p, ok := m.Payload.(*Pack); ok {
		r.Names, r.Tensors, r.Payload = p.Names, p.Tensors, true
		if slices.ContainsFunc(p.Tensors, func(t *tensor.Tensor) bool { return !t.OnHost() }) {
			r.Tensors = p.Host()
			done = func() {
				for _, t := range r.Tensors {
					t.Release()
				}
			}
		}
	}
	if m.Err != nil {
		r.Fault, r.Code = m.Err.Error(), 1
		var x ExitCoder
		if errors.As(m.Err, &x) {
			r.Code = int32(x.ExitCode())
		}
		var bug Traced
		if errors.As(m.Err, &bug) {
			r.Stack = string(bug.Trace())
		}
	}
	return r, done
}
