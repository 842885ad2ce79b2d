package host

import (
	"fmt"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// Load allocates the rank's parameters and optimizer state and fills them. Experts come to lie as placed
// says, and those of other layers in order.
func (r *Rank) Load(fill family.FillFunc, placed ...core.Placed) error {
	plans := r.plans()
	if err := r.inOrder(placed...); err != nil {
		return err
	}
	for _, h := range r.c.Held {
		if h.Packed.Form > 0 {
			if err := r.loadPacked(h.Param, h.Region, fill); err != nil {
				return err
			}
			continue
		}
		full, err := r.loadOne(h.Param, h.Region, fill)
		if err != nil {
			return err
		}
		if q, trained := plans[h.Name]; trained {
			err = r.loadState(q, full, fill)
		}
		full.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// plans are the rank's trained parameters by name.
func (r *Rank) plans() map[string]layout.ParamPlan {
	out := map[string]layout.ParamPlan{}
	for _, p := range r.c.Params {
		out[p.Name] = p
	}
	return out
}

// regionShape is the shape of the rows g of the local part of p, the rows being those of the first axis.
func regionShape(p *grad.Param, g family.Region) []int {
	s := append([]int(nil), p.Local...)
	s[0] = g.To - g.From
	return s
}

// loadOne sets the model's parameter and returns its float32 values with a reference.
func (r *Rank) loadOne(p *grad.Param, g family.Region, fill family.FillFunc) (*tensor.Tensor, error) {
	full, err := r.c.Pool.New(p.Name, tensor.F32, regionShape(p, g)...)
	if err != nil {
		return nil, err
	}
	ok := false
	err = r.fill(full, func(dst []float32) (err error) {
		ok, err = r.filled("param", p, g, dst, fill)
		return
	})
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
func (r *Rank) filled(kind string, p *grad.Param, g family.Region, dst []float32, fill family.FillFunc) (bool, error) {
	n := 1
	for _, x := range g.Intervals(p) {
		n *= x[1] - x[0]
	}
	clear(dst[n:])
	if !p.Experts || r.experts.at[p.Block] == nil {
		return fill(kind, p, g, dst[:n])
	}
	all := true
	for _, x := range r.experts.regions(p, g) {
		ok, err := fill(kind, p.Logical(), x.region, dst[x.row*n/x.of:(x.row+x.region.To-x.region.From)*n/x.of])
		if err != nil {
			return false, err
		}
		all = all && ok
	}
	return all, nil
}

// loadState sets the master copy (when the model is not float32) and the optimizer's state of the rows
// this rank updates.
func (r *Rank) loadState(q layout.ParamPlan, full *tensor.Tensor, fill family.FillFunc) error {
	st := make([]*tensor.Tensor, len(kinds(q)))
	releaseAll(r.state[q.Name]) // of the state that it leaves
	r.state[q.Name] = st        // as far as it goes, should an allocation fail
	for i, kind := range kinds(q) {
		if i == 0 && q.Value.DType == tensor.F32 {
			continue
		}
		p, d, own, _ := stateOf(q, i)
		t, err := r.home(q).New(kind+" of "+q.Name, d, regionShape(p, own)...)
		if err != nil {
			return err
		}
		st[i] = t
		ok := false
		err = r.fill(t, func(dst []float32) (err error) {
			ok, err = r.filled(kind, p, own, dst, fill)
			return
		})
		switch {
		case err != nil:
			return err
		case ok:
		case i == 0:
			rows := full.RowSlice(own.From-q.Region.From, own.To-q.Region.From)
			kernels.Move(r.c.Backend, t, rows)
			rows.Release()
		case q.Away || !d.Float():
			kernels.Write(t, make([]byte, t.Size()))
		default:
			r.kernel(kernels.Fill, kernels.Attr{}, nil, t)
		}
	}
	return nil
}

// stateOf is a parameter as the i-th of its kinds looks, the type of that, the region that a rank has of it, and
// whether it saves that.
func stateOf(q layout.ParamPlan, i int) (p *grad.Param, d tensor.DType, own family.Region, saves bool) {
	if i == 0 { // its master copy
		return q.Param, tensor.F32, q.Own, q.SavesOwn
	}
	f := q.Optim.Form(i - 1)
	own, saves = q.OwnState(f)
	return layout.OfState(q.Param, f), f.Type, own, saves
}

// Part is a region of a parameter or of its state that a rank holds.
type Part struct {
	Kind   string // param, checkpoint.PackedKind, master, or the name of a state tensor
	Param  *grad.Param
	Region family.Region
	Tensor *tensor.Tensor
	Row    int // of the tensor, that the region begins at
}

// Parts lists what this rank contributes to a checkpoint: each region of each logical tensor is held by
// exactly one rank's list.
func (r *Rank) Parts() (out []Part) {
	plans := r.plans()
	for _, h := range r.c.Held {
		if h.Saves {
			kind := paramKind
			if h.Packed.Form > 0 {
				kind = checkpoint.PackedKind(h.Packed, h.Columns())
			}
			out = append(out, r.parts(Part{Kind: kind, Param: h.Param, Region: h.Region, Tensor: r.run.Params[h.Name],
				Row: 0})...)
		}
		q, trained := plans[h.Name]
		if !trained {
			continue
		}
		for i, t := range r.state[h.Name] {
			if p, _, own, saves := stateOf(q, i); t != nil && saves {
				out = append(out, r.parts(Part{Kind: kinds(q)[i], Param: p, Region: own, Tensor: t, Row: 0})...)
			}
		}
	}
	return out
}

// parts cuts a region whose rows are experts that do not lie in order into pieces that are regions of the
// logical tensor: files do not depend on where experts lie.
func (r *Rank) parts(p Part) (out []Part) {
	if !p.Param.Experts || r.experts.at[p.Param.Block] == nil {
		return []Part{p}
	}
	for _, x := range r.experts.regions(p.Param, p.Region) {
		if x.first {
			out = append(out, Part{Kind: p.Kind, Param: p.Param.Logical(), Region: x.region, Tensor: p.Tensor,
				Row: x.row})
		}
	}
	return out
}

// Free releases parameters and state; a test then finds no live byte.
func (r *Rank) Free() {
	for _, run := range r.runs {
		run.Close()
	}
	r.abandon()
	r.experts.clear()
	for k, t := range r.run.Params {
		t.Release()
		delete(r.run.Params, k)
	}
	for k, ts := range r.state {
		releaseAll(ts)
		delete(r.state, k)
	}
}
