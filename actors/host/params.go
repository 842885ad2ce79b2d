package host

import (
	"fmt"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
)

// FillFunc writes a region of a logical parameter, or of its optimizer state, as float32; kind is "param", "master" or the
// name of a state tensor. A false result leaves the value at its default: the parameter for master, zero for state.
type FillFunc func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error)

// Load allocates the rank's parameters and optimizer state and fills them.
func (r *Rank) Load(all []*grad.Param, fill FillFunc) error {
	plans := map[string]layout.ParamPlan{}
	for _, p := range r.c.Params {
		plans[p.Name] = p
	}
	for _, p := range all {
		g := r.region(p)
		full, err := r.loadOne(p, g, fill)
		if err != nil {
			return err
		}
		if q, trained := plans[p.Name]; trained {
			err = r.loadState(q, g, full, fill)
		}
		full.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// region is what this rank holds of a parameter.
func (r *Rank) region(p *grad.Param) family.Region {
	side := r.c.SideOf[p.Name]
	m := r.c.Sides[side]
	g := family.Region{TP: m.TPPos, Of: m.TP, To: p.Local[0]}
	if r.sharded(side) {
		g.From, g.To = grad.ShardRows(p.Local[0], m.DPPos, m.DP)
	}
	return g
}

func regionShape(p *grad.Param, g family.Region) []int {
	s := append([]int(nil), p.Local...)
	s[0] = g.To - g.From
	return s
}

// loadOne sets the model's parameter and returns its float32 values with a reference.
func (r *Rank) loadOne(p *grad.Param, g family.Region, fill FillFunc) (*tensor.Tensor, error) {
	full, err := r.c.Pool.New(p.Name, tensor.F32, regionShape(p, g)...)
	if err != nil {
		return nil, err
	}
	ok, err := filled("param", p, g, full.F32(), fill)
	if err == nil && !ok {
		err = fmt.Errorf("no values for parameter %s", p.Name)
	}
	if err != nil {
		full.Release()
		return nil, err
	}
	model := full.Retain()
	if d := p.Value.DType; d != tensor.F32 {
		model.Release()
		if model, err = r.c.Pool.New(p.Name, d, full.Shape...); err != nil {
			full.Release()
			return nil, err
		}
		r.kernel(kernels.Cast, kernels.Attr{}, []*tensor.Tensor{full}, model)
	}
	if old := r.run.Params[p.Name]; old != nil {
		old.Release()
	}
	r.run.Params[p.Name] = model
	return full, nil
}

// filled fills a region; rows of padding become 0.
func filled(kind string, p *grad.Param, g family.Region, dst []float32, fill FillFunc) (bool, error) {
	_, rows, _, cols := g.Box(p)
	clear(dst[rows*cols:])
	return fill(kind, p, g, dst[:rows*cols])
}

// loadState sets the master copy (when the model is not float32) and the optimizer's state of the rows this rank updates.
func (r *Rank) loadState(q layout.ParamPlan, g family.Region, full *tensor.Tensor, fill FillFunc) error {
	own := family.Region{TP: g.TP, Of: g.Of, From: q.From, To: q.To}
	st := make([]*tensor.Tensor, 1+len(r.opt.State))
	kinds := append([]string{"master"}, r.opt.State...)
	for i, kind := range kinds {
		if i == 0 && q.Value.DType == tensor.F32 {
			continue
		}
		t, err := r.c.Pool.New(kind+" of "+q.Name, tensor.F32, regionShape(q.Param, own)...)
		if err != nil {
			return err
		}
		st[i] = t
		ok, err := filled(kind, q.Param, own, t.F32(), fill)
		switch {
		case err != nil:
			return err
		case ok:
		case i == 0:
			rows := full.RowSlice(q.From-g.From, q.To-g.From)
			r.kernel(kernels.Cast, kernels.Attr{}, []*tensor.Tensor{rows}, t)
			rows.Release()
		default:
			r.kernel(kernels.Fill, kernels.Attr{}, nil, t)
		}
	}
	r.state[q.Name] = st
	return nil
}

// Part is a region of a parameter or of its state that a rank holds.
type Part struct {
	Kind   string // param, master, or the name of a state tensor
	Param  *grad.Param
	Region family.Region
	Tensor *tensor.Tensor
}

// Parts lists what this rank contributes to a checkpoint: each region of each logical tensor is held by exactly one
// rank's list.
func (r *Rank) Parts(all []*grad.Param) (out []Part) {
	plans := map[string]layout.ParamPlan{}
	for _, p := range r.c.Params {
		plans[p.Name] = p
	}
	for _, p := range all {
		side := r.c.SideOf[p.Name]
		m := r.c.Sides[side]
		replicated := p.Place.On(layout.AxisTP).Kind == grad.Replicated && m.TPPos > 0
		g := r.region(p)
		q, trained := plans[p.Name]
		firstTie := !r.c.Elsewhere[p.Name]
		if !replicated && firstTie && (r.sharded(side) || m.DPPos == 0) {
			out = append(out, Part{"param", p, g, r.run.Params[p.Name]})
		}
		if !trained || replicated || !firstTie || (r.c.Zero == 0 || m.DP == 1) && m.DPPos > 0 {
			continue
		}
		own := family.Region{TP: g.TP, Of: g.Of, From: q.From, To: q.To}
		for i, t := range r.state[p.Name] {
			if t != nil {
				out = append(out, Part{append([]string{"master"}, r.opt.State...)[i], p, own, t})
			}
		}
	}
	return out
}

// Free releases parameters and state; a test then finds no live byte.
func (r *Rank) Free() {
	for _, f := range r.frames {
		f.Drop()
	}
	for _, m := range []map[string]*tensor.Tensor{r.run.Params, r.run.Grads, r.owned} {
		for k, t := range m {
			t.Release()
			delete(m, k)
		}
	}
	for k, ts := range r.state {
		for _, t := range ts {
			if t != nil {
				t.Release()
			}
		}
		delete(r.state, k)
	}
}
