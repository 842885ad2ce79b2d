package sim

import (
	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/topology"
)

// Groups of a described rank, as core.Comm names them.
const (
	GroupTP = iota
	GroupDP
)

// Description is a run without a model: what each pass does, on every rank of a mesh.
type Description struct {
	Mesh    topology.Mesh
	Program *plan.Program
	// of an action, each awaiting the one before; the same list for the same action
	Passes    func(a plan.Action) []core.Segment
	Update    []core.Segment // the optimizer step, likewise
	Moving    []core.Segment // the same where experts move behind it, nil for never
	PortBytes int64          // of an activation between stages
	Steps     int64
}

// Layout makes the layouts of all behaviours. Lists that many ranks share exist once.
func (d *Description) Layout() *Layout {
	m := d.Mesh
	out := &Layout{Coordinator: 0, Observer: 1, BatchBytes: 1, Names: m.Name, Run: core.RunLayout{First: 1,
		Last: d.Steps, LossScale: core.LossScale{Scale: 1}, LR: func(step int64) float64 { return float64(step) }}}
	ref := func(rank int) actors.Ref { return actors.Ref(2 + rank) }
	members := func(ranks []int) (refs []actors.Ref) {
		for _, r := range ranks {
			refs = append(refs, ref(r))
		}
		return
	}
	ports := make([]core.Port, 0, len(d.Program.StageRank))
	for s := range d.Program.StageRank {
		for _, to := range d.Program.After(s) {
			ports = append(ports, core.Port{ID: int32(len(ports)), From: s, To: to, Grad: true, Bytes: d.PortBytes})
		}
	}
	tps, dps := map[int][]actors.Ref{}, map[int][]actors.Ref{} // by the group's first rank
	shared := func(known map[int][]actors.Ref, ranks []int) []actors.Ref {
		if known[ranks[0]] == nil {
			known[ranks[0]] = members(ranks)
		}
		return known[ranks[0]]
	}
	chains := map[*core.Segment][]core.Segment{} // by the pass's first segment
	for _, row := range d.Program.Rows {         // here, since ranks may run at once
		for _, e := range row {
			for _, a := range [...]plan.Action{e.Action, e.With} {
				if segs := d.passes(a); len(segs) > 0 && chains[&segs[0]] == nil {
					chains[&segs[0]] = core.Chain(segs)
				}
			}
		}
	}
	lower := func(a plan.Action, _ bool, _ int32) []core.Segment {
		segs := d.Passes(a)
		if len(segs) == 0 {
			return nil
		}
		if chain := chains[&segs[0]]; chain != nil {
			return chain
		}
		return core.Chain(segs) // of no row
	}
	update, moving := core.Chain(d.Update), core.Chain(d.Moving)
	for r := range m.Size() {
		rl := &core.RankLayout{Rank: r, Program: d.Program, Row: m.At(r, topology.PP), Lower: lower, Update: update,
			Moving: moving, Ports: ports, Credits: 2, Coordinator: 0, Loader: ref(m.Size() + m.Replica(r)),
			Groups: []core.Group{{Members: shared(tps, m.Group(r, topology.TP)), Pos: m.At(r, topology.TP)},
				{Members: shared(dps, m.Group(r, topology.DP)), Pos: m.At(r, topology.DP)}},
			Peer: func(stage int) actors.Ref {
				return ref(m.Move(r, topology.PP, d.Program.StageRank[stage]))
			}}
		out.Ranks, out.RankRefs = append(out.Ranks, rl), append(out.RankRefs, ref(r))
	}
	for dp := range m.Replicas() {
		l := &core.LoaderLayout{Ahead: 1, Last: d.Steps}
		for r := range m.Size() {
			if m.Replica(r) == dp {
				l.Ranks = append(l.Ranks, ref(r))
			}
		}
		out.Loaders, out.LoaderRefs = append(out.Loaders, l), append(out.LoaderRefs, ref(m.Size()+dp))
	}
	return out
}

// passes are Passes of an action that is one.
func (d *Description) passes(a plan.Action) []core.Segment {
	if a.Kind == plan.None {
		return nil
	}
	return d.Passes(a)
}
