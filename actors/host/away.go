package host

import (
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Optimizer state that waits on the host comes to the device in pieces, each while the one before is
// updated, and goes back likewise. The kernels are those that update state on the device, on the same
// operands, so that the bits are the same.

// awayPool is where a rank's tensors wait on the host: in pinned memory that its device copies from by
// itself, in files that are mapped into memory, or in memory as it is.
func awayPool(c *RankConfig) (*tensor.Pool, error) {
	if p, ok := c.Backend.(kernels.Parker); ok && p.Parks() {
		m, err := p.Parking()
		if err != nil {
			return nil, err
		}
		return tensor.NewPool(c.Name+" parked", 0).In(m), nil
	}
	if _, ok := c.Backend.(kernels.Device); ok || c.Files == "" {
		return c.Host, nil
	}
	return tensor.NewPool(c.Name+" in files", 0).Files(c.Files), nil
}

// home is where a parameter's optimizer state lies between updates.
func (r *Rank) home(p layout.ParamPlan) *tensor.Pool {
	if p.Away {
		return r.away
	}
	return r.c.Pool
}

// pieces brings state from the host, one piece ahead of the one that is updated.
type pieces struct {
	r    *Rank
	rest []layout.Piece
	next []*tensor.Tensor // of rest[0]
}

// pieces lets the first piece come.
func (r *Rank) pieces() *pieces {
	x := &pieces{r: r, rest: r.c.Pieces}
	x.fetch()
	return x
}

// fetch lets the state of the next piece come, if there is one.
func (x *pieces) fetch() {
	if x.next = nil; len(x.rest) == 0 {
		return
	}
	p := x.rest[0]
	for _, whole := range x.r.state[x.r.c.Params[p.Param].Name] {
		if whole == nil { // parameters in float32 have no master copy
			x.next = append(x.next, nil)
			continue
		}
		rows := whole.RowSlice(p.From, p.To)
		t, err := x.r.c.Pool.New("optimizer state of "+x.r.c.Params[p.Param].Name, rows.DType, rows.Shape...)
		if err != nil {
			rows.Release()
			panic(err)
		}
		kernels.Move(x.r.c.Backend, t, rows)
		rows.Release()
		x.next = append(x.next, t)
	}
}

// of calls update with each piece of a parameter, and sends the state that it leaves back to the host.
func (x *pieces) of(param int, update func(p layout.Piece, state []*tensor.Tensor)) {
	for len(x.rest) > 0 && x.rest[0].Param == param {
		p, state := x.rest[0], x.next
		x.rest = x.rest[1:]
		x.fetch()
		update(p, state)
		for i, whole := range x.r.state[x.r.c.Params[param].Name] {
			if whole == nil {
				continue
			}
			rows := whole.RowSlice(p.From, p.To)
			kernels.Move(x.r.c.Backend, rows, state[i])
			rows.Release()
		}
		releaseAll(state)
	}
}

// releaseAll drops those tensors that are there.
func releaseAll(ts []*tensor.Tensor) {
	for _, t := range ts {
		if t != nil {
			t.Release()
		}
	}
}
