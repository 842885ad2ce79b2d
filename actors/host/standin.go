package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// A rank that is gone for good has left a copy of its state with another, which writes its part of a
// checkpoint. What that part is made of follows from the layout, which all processes have.

// standIn is what a rank's part of a checkpoint is made by where the rank itself is gone: no backend, for
// nothing is computed.
func standIn(l *layout.Layout, o RunOptions, rank int) RankConfig {
	part := &l.Ranks[rank]
	return RankConfig{Name: l.Name(rank), Held: part.All, Params: part.Params, Moves: l.Moves(part),
		Pool: tensor.NewPool(l.Name(rank)+" stand-in", 0), Optim: l.Design.Optim, Save: saver(o, rank)}
}

// standFor writes the part of another rank from the copy of that one's state that a job brings.
func (r *Rank) standFor(j actors.Job) (Result, error) {
	in := j.In[0]
	p := in.Payload.(*links.Pack)
	defer p.Release()
	c := r.c.Stand(int(actors.Ref(in.Member) - layout.FirstRank))
	if c.Save == nil {
		return Result{}, nil
	}
	s, err := stood(c, p)
	if err != nil {
		return Result{}, fmt.Errorf("%s: the part of %s after step %d: %w", r.c.Name, c.Name, j.Step, err)
	}
	defer s.Free()
	if err := c.Save.Snapshot(j.Step, s, j.Text); err != nil {
		return Result{}, fmt.Errorf("%s: the part of %s after step %d: %w", r.c.Name, c.Name, j.Step, err)
	}
	return s.write(j)
}

// stood is a rank whose state is a copy that keep has made.
func stood(c RankConfig, p *links.Pack) (*Rank, error) {
	s := &Rank{c: c, run: &grad.Runner{Params: map[string]*tensor.Tensor{}},
		state: map[string][]*tensor.Tensor{}, experts: experts{map[int][]int{}, map[int]*tensor.Tensor{}}}
	s.runs = []*grad.Runner{s.run}
	if err := s.inOrder(); err != nil {
		return nil, err
	}
	plans := s.plans()
	for i, name := range p.Names {
		if is, err := s.takePlace(name, p.Tensors[i]); is {
			if err != nil {
				s.Free()
				return nil, err
			}
			continue
		}
		kind, param, _ := strings.Cut(name, " ")
		of := kinds(plans[param])
		at, t := slices.Index(of, kind), p.Tensors[i].Retain()
		switch {
		case kind == paramKind:
			s.run.Params[param] = t
		case at < 0:
			t.Release()
			s.Free()
			return nil, fmt.Errorf("a copy has %q, which that rank has not", name)
		default:
			if s.state[param] == nil {
				s.state[param] = make([]*tensor.Tensor, len(of))
			}
			s.state[param][at] = t
		}
	}
	return s, nil
}
