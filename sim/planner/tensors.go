package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/cost"
	"github.com/lfactor/lfactor/topology/search"
)

// Tensors is what becomes of each tensor that blocks keep for their backward, so that a run file's own plan
// fits into memory and its step takes least time.
type Tensors struct {
	Model       string       `json:"model"`
	List        []TensorFate `json:"tensors"`
	Settings    []string     `json:"settings"` // that a run file or a plan takes them by
	PeakBytes   int64        `json:"peak_bytes"`
	StepSeconds float64      `json:"step_seconds"`
	Exact       bool         `json:"exact"` // no combination was left out

}

// TensorFate is what becomes of tensors of one name in some blocks in a row.
type TensorFate struct {
	Tensor string `json:"tensor"`
	From   int    `json:"first_block"`
	To     int    `json:"last_block"`
	Fate   string `json:"fate"`  // keep, offload or recompute
	Bytes  int64  `json:"bytes"` // of each, on one rank and for one microbatch
}

// fateNames are by search.Fate.
var fateNames = []string{"", "keep", "offload", "recompute"}

// tensorSearch is a plan whose tensors are chosen for.
type tensorSearch struct {
	cfg   *configs.Config
	m     *cost.Machine
	base  *layout.Layout // that keeps everything
	made  [][]grad.Made  // by stage
	ways  [][]search.Fates
	limit int64
}

// noTensors are settings of a plan that chooses for no tensor by name.
var noTensors = []string{"plan.offload_tensors=[]", "plan.recompute_tensors=[]", "plan.keep_tensors=[]"}

// forgetOwn has plans that are looked for choose for no tensor where the run file's own does: which tensors
// cross from stage to stage, and so cannot be computed again, is different in each. Nor do they overlap
// microbatches because it does, which not all can.
func (p *Search) forgetOwn(own *configs.Plan) {
	p.forget = nil
	if len(own.OffloadTensors)+len(own.RecomputeTensors)+len(own.KeepTensors) > 0 {
		p.forget = slices.Clone(noTensors)
	}
	if own.OverlapMicro {
		p.forget = append(p.forget, "plan.overlap_microbatches=false")
	}
	p.request.Args = slices.Concat(p.request.Args, p.forget)
}

// grains is how finely memory is searched: each stage is given a whole number of that many parts of what it would keep.
const grains = 64

// ChooseTensors decides, for each tensor that blocks of the run file's own plan keep for their backward,
// whether it stays on the device, goes to host memory or is computed again: what takes least time on the machine,
// within its memory or plan.memory. A plan that does not fit with any choice is an error with exit.Fit.
func ChooseTensors(ctx context.Context, r configs.Request, cluster string) (*Tensors, error) {
	if r.Getenv == nil {
		r.Getenv = os.Getenv
	}
	m, err := rehearsal.Machine(cluster)
	if err != nil {
		return nil, err
	}
	r.Args = slices.Concat(r.Args, []string{"plan.recompute=none", "plan.recompute_layers=[]",
		"plan.offload=false"}, noTensors)
	s := &tensorSearch{m: m}
	if s.cfg, err = configs.Load(r); err != nil {
		return nil, err
	}
	if err = setup.Vocabulary(s.cfg); err != nil {
		return nil, err
	}
	if s.base, err = s.laidOut(nil); err != nil {
		return nil, err
	}
	switch j := s.base.Design; {
	case len(j.Parts) > 0 || j.Component != nil:
		return nil, exit.Usagef("--tensors: models with an encoder have a policy for each part; set plan.recompute " +
			"and plan.encoder.recompute")
	case j.Chunks > 1:
		return nil,
			exit.Usagef("--tensors: chunks of a sequence share what they keep; set plan.recompute and plan.keep_chunks")
	}
	if s.limit = int64(s.cfg.Run.Plan.Memory); s.limit == 0 {
		s.limit = int64(m.Least())
	}
	var out *Tensors
	fits := false
	// the simulation knows more of copies than what the search adds up
	for _, moves := range []bool{false, true} {
		one := &Tensors{Model: s.cfg.Model.Identity(), Exact: true}
		s.frontiers(one, moves)
		switch err = s.choose(ctx, one); {
		case err == nil && (!fits || one.StepSeconds < out.StepSeconds):
			out, fits = one, true
		case err != nil && !unfit(err):
			return nil, err
		}
	}
	if fits {
		err = nil
	}
	return out, err
}

// laidOut is the plan with tensors dealt with as chosen.
func (s *tensorSearch) laidOut(chosen []layout.Chosen) (*layout.Layout, error) {
	j, err := layout.FromConfig(s.cfg)
	if err != nil {
		return nil, err
	}
	rehearsal.PriceOn(j, s.m)
	j.Memory, j.Chosen = 0, chosen
	l, err := layout.New(j)
	if err != nil {
		return nil, exit.With(err, exit.Usage)
	}
	return l, nil
}

// frontiers lists, for each stage, the ways to deal with what its blocks make, with copies to the host or without.
func (s *tensorSearch) frontiers(out *Tensors, moves bool) {
	s.made, s.ways = nil, nil
	for stage := range s.base.Stages {
		made := s.base.Made(stage)
		var all []search.Tensor
		for _, x := range made {
			all = append(all, search.Tensor{Bytes: x.Bytes, Needed: x.Needed, Again: x.Again, Away: x.Away && moves,
				Seconds: s.again(&x.Cost), Reads: x.Reads})
		}
		ways, exact := search.Frontier(all)
		s.made, s.ways, out.Exact = append(s.made, made), append(s.ways, ways), out.Exact && exact
	}
}

// again is the time of computing a tensor again; what comes over the network once more is not hidden.
func (s *tensorSearch) again(c *grad.Cost) float64 {
	t := s.m.Segment(c.Filled, c.Bytes, c.Calls)
	if c.Comm > 0 {
		t += s.m.Local.Of(c.Comm)
	}
	return t
}

// copying is what moves a stage's tensors beside its work.
func (s *tensorSearch) copying(stage int) search.Copying {
	tr, c := s.base.Main(stage), search.Copying{PerByte: 1 / s.m.Copy}
	for _, ph := range []grad.Phase{grad.F, grad.B} {
		for _, x := range tr.Segments(ph) {
			c.Beside += s.m.Segment(x.Cost.Filled, x.Cost.Bytes, x.Cost.Calls)
		}
	}
	return c
}

// fates deals with every stage's tensors within so many parts of what it would keep, by its pipeline rank.
func (s *tensorSearch) fates(parts []int) (out [][]search.Fate) {
	for stage, ways := range s.ways {
		most, least := int64(0), ways[0].Kept
		for _, w := range ways {
			most, least = max(most, w.Kept), min(least, w.Kept)
		}
		budget := least + (most-least)*int64(parts[s.base.Program.StageRank[stage]])/grains
		out = append(out, search.Best(ways, budget, s.copying(stage)).List(len(s.made[stage])))
	}
	return out
}

// choose gives each pipeline rank as much memory for its tensors as there is.
func (s *tensorSearch) choose(ctx context.Context, out *Tensors) error {
	pp := s.base.Design.Mesh.Len(topology.PP)
	low, high, parts := make([]int, pp), make([]int, pp), make([]int, pp)
	for r := range pp {
		high[r], parts[r] = grains, grains // what needs no choice is tried first
	}
	for {
		open := false
		for r := range pp {
			open = open || low[r] < high[r]
		}
		out.List = s.list(s.fates(parts))
		l, err := s.laidOut(chosenOf(out.List))
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		over := s.over(l)
		if !open {
			if most := slices.Max(over); most > 0 {
				return exit.With(fmt.Errorf("a rank needs %s more than %s even with all that can be "+
					"moved or computed again; take more ranks, or smaller microbatches", tensor.Bytes(most),
					tensor.Bytes(s.limit)), exit.Fit)
			}
			return s.price(ctx, l, out)
		}
		for r := range pp {
			switch {
			case low[r] == high[r]:
			case over[r] <= 0:
				low[r] = parts[r]
			default:
				high[r] = parts[r] - 1
			}
			parts[r] = (low[r] + high[r] + 1) / 2
		}
	}
}

// over is by how much the rank of each pipeline rank that needs most is above the limit.
func (s *tensorSearch) over(l *layout.Layout) []int64 {
	out := make([]int64, l.Design.Mesh.Len(topology.PP))
	for r := range out {
		out[r] = l.Memory(l.Design.Mesh.Move(0, topology.PP, r)).WorstTotal() - s.limit
	}
	return out
}

// list puts tensors of one name and fate in blocks in a row together.
func (s *tensorSearch) list(fates [][]search.Fate) (out []TensorFate) {
	at := map[string]int{}
	for stage, made := range s.made {
		for i, x := range made {
			f := fates[stage][i]
			if f == search.Unneeded {
				continue
			}
			k, ok := at[x.Tensor]
			if ok && out[k].Fate == fateNames[f] && out[k].To+1 >= x.Block && out[k].Bytes == x.Bytes {
				out[k].To = x.Block
				continue
			}
			at[x.Tensor] = len(out)
			out = append(out, TensorFate{Tensor: x.Tensor, From: x.Block, To: x.Block, Fate: fateNames[f],
				Bytes: x.Bytes})
		}
	}
	return out
}

func (f *TensorFate) name() configs.TensorName {
	return configs.TensorName{Name: f.Tensor, From: f.From, To: f.To}
}

// chosenOf is what a job takes of a list: everything stays that it does not say more of.
func chosenOf(list []TensorFate) (out []layout.Chosen) {
	for i := range list {
		switch f := &list[i]; f.Fate {
		case "offload":
			out = append(out, layout.Chosen{TensorName: f.name(), What: grad.Away, Key: "plan.offload_tensors"})
		case "recompute":
			out = append(out, layout.Chosen{TensorName: f.name(), What: grad.Again, Key: "plan.recompute_tensors"})
		}
	}
	return out
}

// price simulates a step and writes down what carries the choice out.
func (s *tensorSearch) price(ctx context.Context, l *layout.Layout, out *Tensors) error {
	lists := map[string][]string{}
	for i := range out.List {
		f := &out.List[i]
		text := fmt.Sprintf("%s@%d-%d", f.Tensor, f.From, f.To)
		if f.From == f.To {
			text = fmt.Sprintf("%s@%d", f.Tensor, f.From)
		}
		lists[f.Fate] = append(lists[f.Fate], text)
	}
	out.Settings = []string{"plan.recompute=none", "plan.offload=false"}
	for _, fate := range []string{"offload", "recompute"} {
		out.Settings = append(out.Settings, fmt.Sprintf("plan.%s_tensors=[%s]", fate, strings.Join(lists[fate], ", ")))
	}
	for r := range l.Ranks {
		out.PeakBytes = max(out.PeakBytes, l.Memory(r).WorstTotal())
	}
	l.Design.Memory = s.limit
	r, err := rehearsal.Of(l, rehearsal.Options{Machine: s.m})
	if err != nil {
		return err
	}
	res := r.Run(sim.Options{Stop: func() bool { return ctx.Err() != nil }})
	out.StepSeconds = r.Summary(res).StepSeconds
	return rehearsal.Fault(res)
}

// PlanFile is what lfactor train --plan takes.
func (t *Tensors) PlanFile() []byte {
	f := configs.PlanFile{Model: t.Model, Settings: t.Settings}
	return f.Text(fmt.Sprintf("tensors that stay, are moved or computed again: step %s, %s a rank",
		unit.Seconds(t.StepSeconds), tensor.Bytes(t.PeakBytes)))
}

// unfit reports whether an error says that a plan needs too much memory.
func unfit(err error) bool {
	var e exit.Error
	return errors.As(err, &e) && e.Code == exit.Fit
}
