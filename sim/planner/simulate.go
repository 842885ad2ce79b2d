package planner

import (
	"fmt"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/cost"
	"github.com/lfactor/lfactor/topology/search"
)

// blockCosts prices each stage of a layout, which is one block, with the segments and prices that lfactor sim uses.
//
//lfvet:long few statements, on short lines
func (p *Search) blockCosts(l *layout.Layout, v search.Variant) (out []search.BlockCost) {
	price := rehearsal.Prices(p.Machine.Planned(v.TP, l.Design.Model.Low != nil))
	tp, dp := l.GroupAlong(layout.DecoderSide, topology.TP), l.GroupAlong(layout.DecoderSide, topology.DP)
	near := nearby(l)
	sharing := &exchange{p: p, l: l, v: v, near: near, price: price}
	of := func(segs []core.Segment) (pass search.Pass) {
		if v.CP > 1 || v.Overlap {
			return p.waits(segs, sharing.seconds, sharing.behind)
		}
		for i, x := range segs {
			t := 0.0
			for _, c := range x.Comms {
				switch members := near[c.Group]; {
				case c.Group == tp && v.TP > 1:
					t += float64(price.Collective(p.Space.Group(v.TP, 1), c.Bytes, c.Apart)) / 1e9
				case c.Group == dp && v.DP > 1:
					// traced with two replicas, of which each sends the other half of a tensor; of n each
					// sends n-1 parts of n
					t += float64(price.Collective(p.Space.Group(v.DP, v.TP),
						c.Bytes*2*int64(v.DP-1)/int64(v.DP), c.Apart)) / 1e9
				case v.EP > 0 && len(members) > 1: // of experts, whose ranks lie as in the plan
					t += float64(price.Collective(members, c.Bytes, c.Apart)) / 1e9
				}
			}
			pass.Append(p.Machine, i == 0, search.Piece{Flops: x.Flops, Bytes: x.Bytes, Calls: x.Calls}, t)
		}
		return
	}
	first, embed := map[string]bool{}, l.Design.Model.Foundation() // every stage is a block
	for s := range l.Stages {
		// a large microbatch, with images where the model takes them
		key := layout.TraceKey{Stage: s, Class: l.Class}
		tr, b := l.Traces[key], search.BlockCost{}
		pass := func(k plan.Kind) search.Pass {
			return of(l.Lower(plan.Action{Kind: k, Stage: int16(s)}, false, l.Class))
		}
		b.Passes[0] = pass(plan.F)
		if v.Split {
			b.Passes[1], b.Passes[2] = pass(plan.I), pass(plan.W)
		} else {
			b.Passes[1] = pass(plan.B)
		}
		b.F, b.I, b.W = b.Passes[0].Seconds(p.Machine), b.Passes[1].Seconds(p.Machine), b.Passes[2].Seconds(p.Machine)
		foot, given := tr.Memory(v.Split, l.WorstShare()), int64(0)
		for _, h := range foot.Gives {
			given += h.Bytes // the next block holds it until its backward
		}
		b.PeakF, b.Held = foot.Peak[grad.F], foot.After[grad.F]+given
		b.PeakB, b.HeldW = foot.Peak[grad.B]+given, foot.After[grad.B]
		if v.Split {
			b.PeakB, b.HeldW = max(foot.Peak[grad.I], foot.Peak[grad.W])+given, foot.After[grad.I]
		}
		for _, x := range tr.Params {
			if x.Frozen {
				continue
			}
			n := int64(tensor.Len(x.Local))
			b.Params, b.Tensors = b.Params+n, b.Tensors+1
			if v.EP*v.ETP > 1 && x.Fold > 0 {
				b.Experts += n
			}
			if s == embed {
				first[x.Name] = true
			} else if first[x.Name] {
				b.TiedToFirstBlock += n
			}
		}
		for _, x := range l.Ports {
			if x.From == s {
				b.Port = max(b.Port, x.Bytes)
			}
		}
		out = append(out, b)
	}
	return
}

// nearby are the devices of each of the first rank's groups, counted from their first.
func nearby(l *layout.Layout) (out [][]int) {
	for _, g := range l.RankLayout(0, 0).Groups {
		d := make([]int, len(g.Members))
		for i, r := range g.Members {
			d[i] = int(r - g.Members[0])
		}
		out = append(out, d)
	}
	return out
}

// Simulate runs a candidate's own program in virtual time. Ranks of one stage do the same at the same time,
// so that one of them stands for all: its collectives are in the durations of its passes.
func (p *Search) Simulate(c *search.Candidate) error {
	st, err := p.Space.StagesOf(c)
	if err != nil {
		return err
	}
	prog, err := schedule.Build(c.Schedule, schedule.Shape{Ranks: c.PP, Micro: c.Micro, Loops: c.Loops,
		Costs: st.Costs(c.Schedule)})
	if err != nil {
		c.Why = err.Error()
		return nil
	}
	own := make([]search.Weights, c.PP)
	for r := range own {
		own[r] = st.Own(prog.StageRank, r)
	}
	update := make([]int64, c.PP)
	var port int64
	for r, x := range own {
		seconds := p.Space.Update(c, x, p.Space.Back(c, st, prog.StageRank, r))
		if st.TiedRank(prog.StageRank, r) {
			seconds += p.Space.Tied(c, st, prog.StageRank)
		}
		update[r] = cost.Nanoseconds(seconds)
	}
	for s := range st.Blocks {
		port = max(port, st.Blocks[s].Port)
	}
	d := &sim.Description{Mesh: topology.Grid(c.PP, 1, 1), Program: prog, PortBytes: port, Steps: 1,
		Update: []core.Segment{{Ready: true}}, Passes: func(plan.Action) []core.Segment { return rehearsal.OnePass }}
	l := d.Layout()
	l.Memory = stageMemory(st, func(r int) int64 { return p.Space.Base(c, own[r]) })
	link := p.Space.Link(c)
	pr := sim.Prices{Job: func(rank int, j *actors.Job, _ *core.Segment) int64 {
		switch {
		case rank < 0, j.Kind == actors.UpdatePhase && j.Segment > 0:
			return 0
		case j.Kind == actors.UpdatePhase:
			return update[rank]
		}
		b, a := &st.Blocks[j.Action.Stage], j.Action
		switch a.Kind {
		case plan.F:
			return cost.Nanoseconds(b.F)
		case plan.I:
			return cost.Nanoseconds(b.I)
		case plan.W:
			return cost.Nanoseconds(b.W)
		}
		return cost.Nanoseconds(b.I + b.W)
	}, Link: func(from, to int) sim.Link {
		if from < 0 || to < 0 {
			return sim.Link{Out: -1, In: -1}
		}
		return sim.Link{Latency: cost.Nanoseconds(link.Latency), PerByte: 1e9 * link.PerByte,
			Out: int32(2 * from), In: int32(2*to + 1)}
	}}
	res := sim.New(l, pr, sim.Options{}).Run()
	if res.Failed != "" || res.Stall != nil {
		return fmt.Errorf("plan %v: the simulated run ended badly: %s", c, rehearsal.Why(res))
	}
	p.take(c, res)
	return nil
}

// take notes what a simulation showed about a candidate.
func (p *Search) take(c *search.Candidate, res *sim.Result) {
	c.Simulated, c.Memory = res.Steps[0].Time/1e9, 0
	var busy int64
	for r, a := range res.Ranks {
		busy, c.Memory = max(busy, a.Busy), max(c.Memory, res.Peak[r])
	}
	c.Bubble = max(0, 1-unit.OfNanoseconds(busy)/c.Simulated)
	if p.Space.Limit > 0 && c.Memory > p.Space.Limit {
		c.Why = "memory"
	}
}

// stageMemory accounts a stage's frames.
func stageMemory(st *search.Stages, base func(int) int64) sim.Memory {
	return sim.Memory{Base: base, Foot: func(_ int, j *actors.Job) (peak, after int64) {
		b := &st.Blocks[j.Action.Stage]
		switch j.Action.Kind {
		case plan.F:
			return b.PeakF, b.Held
		case plan.I:
			return b.PeakB, b.HeldW
		}
		return b.PeakB, 0
	}}
}
