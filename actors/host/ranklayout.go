package host

import (
	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/topology"
)

// Refs of a run, dense and the same in every process.
const (
	CoordinatorRef actors.Ref = 0
	ObserverRef    actors.Ref = 1
	firstRank      actors.Ref = 2
)

// RankRef is the ref of a rank.
func RankRef(rank int) actors.Ref { return firstRank + actors.Ref(rank) }

// LoaderRef is the ref of the loader that serves replica dp in process proc.
func (l *Layout) LoaderRef(proc, dp int) actors.Ref {
	return firstRank + actors.Ref(l.World()+proc*l.Job.Mesh.DP+dp)
}

// RankLayout is what the behaviour of rank r in process proc knows.
func (l *Layout) RankLayout(r, proc int) *core.RankLayout {
	j, part := l.Job, l.Ranks[r]
	m := j.Mesh
	group := func(ranks []int) core.Group {
		g := core.Group{}
		for i, x := range ranks {
			g.Members = append(g.Members, RankRef(x))
			if x == r {
				g.Pos = i
			}
		}
		return g
	}
	groups := make([]core.Group, GroupTie)
	for side, at := range sideGroups {
		tp, dp := l.sideGroups(r, side)
		groups[at[0]], groups[at[1]] = group(tp), group(dp)
	}
	for _, t := range part.Ties {
		groups = append(groups, group(t))
	}
	return &core.RankLayout{Rank: r, Program: l.Program, Row: part.Row, Eval: l.Eval, Groups: groups, Ports: l.Ports, Lower: l.Lower, Shaped: l.Class > 0,
		Update: UpdateSegments(part.Params, part.Sides, j.Zero, len(part.Ties)),
		Routes: l.routes(r),
		Peer: func(stage int) actors.Ref {
			return RankRef(m.Rank(topology.Coord{PP: l.pipe[stage], DP: part.Coord.DP, TP: part.Coord.TP}))
		},
		Loader: l.LoaderRef(proc, part.Coord.DP), Coordinator: CoordinatorRef, Credits: j.Credits}
}

type loweredKey struct {
	t TraceKey
	k plan.Kind
}

// Lower lists the segments of an action for microbatches of a class. It may be called from several goroutines.
func (l *Layout) Lower(a plan.Action, eval bool, class int32) []core.Segment {
	if a.Chunk < 0 || int(a.Stage) >= len(l.Stages) {
		return nil
	}
	k := loweredKey{TraceKey{int(a.Stage), int(a.Chunk), eval, class}, a.Kind}
	tr := l.Trace(k.t)
	l.mu.Lock()
	defer l.mu.Unlock()
	segs, ok := l.lower[k]
	if !ok {
		if ph, works := phases[a.Kind]; works {
			segs = lower(tr, ph, sideGroups[l.side(k.t.Stage)])
		}
		l.lower[k] = segs
	}
	return segs
}

// lower is what a behaviour knows of a trace's phase; groups are those of tensor and data parallelism.
func lower(tr *grad.Trace, ph grad.Phase, groups [2]int) []core.Segment {
	var out []core.Segment
	for _, s := range tr.Segments(ph) {
		seg := core.Segment{Flops: s.Cost.Flops, Bytes: s.Cost.Bytes, Calls: s.Cost.Calls}
		seg.Away, seg.Back = tr.Copies(&s)
		for _, n := range s.Comm {
			g := groups[0]
			if n.Axes[0] == axisDP {
				g = groups[1]
			}
			seg.Comms = append(seg.Comms, core.Comm{Group: g, Bytes: tr.CommBytes(n)})
		}
		out = append(out, seg)
	}
	return out
}

// Device makes the device of rank r; its parameters are still to be set.
func (l *Layout) Device(r int, b kernels.Backend, save Saver) (*Rank, error) {
	j, part := l.Job, l.Ranks[r]
	var ties []int
	for _, t := range part.Ties {
		ties = append(ties, len(t))
	}
	elsewhere := map[string]bool{}
	for _, p := range part.All {
		elsewhere[p.Name] = l.SideOf[p.Name] == DecoderSide && l.owners(p.Name)[0] != part.Coord.PP
	}
	name := l.Name(r)
	scale := j.LRScale
	if scale == nil {
		scale = func(string) float64 { return 1 }
	}
	return NewRank(RankConfig{Name: name, LRScale: scale, Backend: b, Pool: tensor.NewPool(name, j.Memory), Host: tensor.NewPool(name+" host", 0),
		Sides: part.Sides, SideOf: l.SideOf, StageSide: l.side, Ties: ties, Elsewhere: elsewhere, Zero: j.Zero,
		Trace: l.Trace, Ports: l.Ports, PortNames: l.Names, Optim: j.Optim, Params: part.Params, Save: save})
}
