package host

import (
	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// A rank whose backend has memory of its own takes everything that comes for a job into that memory first,
// behind the events of those who made it, and lets what it sends carry an event. Nothing else in a job
// crosses between host and device but the backend's Read and Write.

// receive replaces the payloads of a job's inputs by copies in the device's memory, where they do not lie
// there yet. A backend that works in host memory takes what another device has made to the host.
func (r *Rank) receive(in []actors.Input) error {
	for i := range in {
		p, ok := in[i].Payload.(*links.Pack)
		if !ok {
			continue
		}
		q, err := r.near(p)
		if err != nil {
			return err
		}
		in[i].Payload = q
	}
	return nil
}

// near is a payload within the backend's reach; it takes over the reference to p.
func (r *Rank) near(p *links.Pack) (*links.Pack, error) {
	if r.device == nil {
		for _, t := range p.Tensors {
			if !t.OnHost() {
				q := links.NewPack(p.Names, p.Host()...)
				p.Release()
				return q, nil
			}
		}
		return p, nil
	}
	own := true
	for _, t := range p.Tensors {
		own = own && t.Memory() == tensor.Memory(r.device)
	}
	if own {
		return p, nil // its own, in the order of its own calls, or what came by channel and is there
	}
	if p.Ready != nil {
		r.device.Await(p.Ready)
	}
	q := links.NewPack(p.Names)
	for _, t := range p.Tensors {
		c, err := r.copied(t)
		if err != nil {
			q.Release()
			p.Release()
			return nil, err
		}
		q.Tensors = append(q.Tensors, c)
	}
	r.device.Then(p.Release)
	return q, nil
}

// copied is a tensor in the device's memory.
func (r *Rank) copied(t *tensor.Tensor) (*tensor.Tensor, error) {
	c, err := r.c.Pool.New("what came from elsewhere", t.DType, t.Shape...)
	if err != nil {
		return nil, err
	}
	switch m := t.Memory(); {
	case m == nil:
		r.device.Write(c, t.Bytes())
	case m.Space() == r.device.Space():
		r.device.Copy(c, t)
	default: // a device of another kind: through the host
		h := kernels.Host(r.c.Backend, t)
		r.device.Write(c, h.Bytes())
		h.Release()
	}
	return c, nil
}

// issued marks what a job sends with the event behind its last call.
func (r *Rank) issued(out []actors.Output) {
	if r.device == nil || len(out) == 0 {
		return
	}
	e := r.device.Record()
	for _, o := range out {
		if p, ok := o.Payload.(*links.Pack); ok {
			p.Ready = e
		}
	}
}

// fill writes float32 values that fill gives, made on the host, into a tensor of the rank.
func (r *Rank) fill(t *tensor.Tensor, fill func(dst []float32) error) error {
	if t.OnHost() && t.DType == tensor.F32 {
		return fill(t.F32())
	}
	h := tensor.Make(tensor.F32, t.Shape...)
	if err := fill(h.F32()); err != nil {
		return err
	}
	if t.DType != tensor.F32 {
		narrow := tensor.Make(t.DType, t.Shape...)
		tensor.Narrow(t.DType, h.F32(), narrow.Bytes())
		h = narrow
	}
	kernels.Write(t, h.Bytes())
	return nil
}

// one takes the only tensor of a payload and drops the payload: the caller owns the tensor's reference.
func one(p actors.Payload) *tensor.Tensor {
	k := p.(*links.Pack)
	t := k.Tensors[0].Retain()
	k.Release()
	return t
}

// all takes the tensors of a payload and drops the payload: the caller owns a reference to each.
func all(p actors.Payload) []*tensor.Tensor {
	k := p.(*links.Pack)
	out := retained(k.Tensors)
	k.Release()
	return out
}
