package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// paramKind is the kind of the model's own values; the others are master and the optimizer's state.
const paramKind = "param"

// kinds names a rank's values of a parameter, in the order of its state.
func kinds(p layout.ParamPlan) []string {
	if p.Optim == nil { // one that is not trained
		return []string{"master"}
	}
	return append([]string{"master"}, p.Optim.State...)
}

// restore gives up all that belongs to the step under way and takes the state of a step: what another rank
// gave or the rank's own copy, what is durable, or what it holds.
func (r *Rank) restore(j actors.Job) error {
	r.abandon()
	r.forget()
	var err error
	switch {
	case len(j.In) > 0:
		p := j.In[0].Payload.(*links.Pack)
		err = r.take(p)
		p.Release()
	case j.Segment == core.FromMember:
	case r.c.Saved == nil:
		err = errors.New("nothing is saved")
	default:
		fill, done, e := r.c.Saved(j.Step)
		if err = e; e == nil {
			err = r.Load(fill, r.placed(j.Step)...)
			done()
		}
	}
	if err != nil {
		return fmt.Errorf("%s: going back to step %d: %w", r.c.Name, j.Step, err)
	}
	return nil
}

// placed says where experts lie in the durable state of a step.
func (r *Rank) placed(step int64) []core.Placed {
	if r.c.Placed == nil || len(r.c.Moves) == 0 {
		return nil
	}
	return r.c.Placed(step)
}

// keep copies the rank's state to host memory. It runs beside the computation, which changes none of it meanwhile.
func (r *Rank) keep() (Result, error) {
	began := time.Now()
	p := links.NewPack(nil)
	add := func(name string, t *tensor.Tensor) error {
		c, err := r.c.Host.New("copy of "+name, t.DType, t.Shape...)
		if err != nil {
			return err
		}
		kernels.Read(r.c.Backend, c.Bytes(), t)
		p.Names, p.Tensors = append(p.Names, name), append(p.Tensors, c)
		return nil
	}
	plans := r.plans()
	for _, h := range r.c.Held {
		err := add(paramKind+" "+h.Name, r.run.Params[h.Name])
		for i, t := range r.state[h.Name] {
			if err == nil && t != nil {
				err = add(kinds(plans[h.Name])[i]+" "+h.Name, t)
			}
		}
		if err != nil {
			p.Release()
			return Result{}, err
		}
	}
	if err := r.keepPlaces(add); err != nil {
		p.Release()
		return Result{}, err
	}
	used := core.Usage{Busy: float64(time.Since(began))}
	return Result{Out: []actors.Output{{Comm: -1, Port: -1, Payload: p}}, Values: used.Values()}, nil
}

// take sets the rank's state to a copy that keep has made, on this rank or on one that holds the same.
func (r *Rank) take(p *links.Pack) error {
	plans := r.plans()
	if err := r.inOrder(); err != nil {
		return err
	}
	for i, name := range p.Names {
		if is, err := r.takePlace(name, p.Tensors[i]); is {
			if err != nil {
				return err
			}
			continue
		}
		kind, param, _ := strings.Cut(name, " ")
		of := kinds(plans[param])
		at := slices.Index(of, kind)
		state := at >= 0
		if !state && kind != paramKind {
			return fmt.Errorf("a copy has %q, which this rank has not", name)
		}
		pool := r.c.Pool
		if state {
			pool = r.home(plans[param])
		}
		t, err := pool.New(name, p.Tensors[i].DType, p.Tensors[i].Shape...)
		if err != nil {
			return err
		}
		kernels.Write(t, p.Tensors[i].Bytes())
		// others may still look at it in the epoch before: it is replaced, not changed
		old := r.run.Params[param]
		if state {
			if r.state[param] == nil {
				r.state[param] = make([]*tensor.Tensor, len(of))
			}
			old = r.state[param][at]
			r.state[param][at] = t
		} else {
			r.run.Params[param] = t
		}
		if old != nil {
			old.Release()
		}
	}
	return nil
}

// abandon drops frames and gradients.
func (r *Rank) abandon() {
	for k, f := range r.frames {
		f.Drop()
		delete(r.frames, k)
	}
	for _, m := range []map[string]*tensor.Tensor{r.run.Grads, r.owned} {
		for k, t := range m {
			t.Release()
			delete(m, k)
		}
	}
	r.routed.forget()
}
