package rehearsal

import (
	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/collective"
	"github.com/lfactor/lfactor/topology/cost"
)

// Layout hands a training layout to the simulator: the very programs, segments and protocols that training would use.
func Layout(l *layout.Layout, run core.RunLayout) *sim.Layout {
	out := &sim.Layout{Coordinator: layout.CoordinatorRef, Observer: layout.ObserverRef, Run: run,
		BatchBytes: int64(l.Design.Rows) * 16, Names: l.Name}
	for r := range l.Ranks {
		rl := l.RankLayout(r, 0)
		out.Ranks, out.RankRefs = append(out.Ranks, rl), append(out.RankRefs, layout.RankRef(r))
	}
	for dp := range l.Design.Mesh.Replicas() {
		out.Loaders = append(out.Loaders, &core.LoaderLayout{Coordinator: layout.CoordinatorRef, Ahead: 1, Last: run.Last})
		out.LoaderRefs = append(out.LoaderRefs, l.LoaderRef(0, dp))
	}
	for r, part := range l.Ranks {
		to := out.Loaders[part.Coord.DP]
		to.Ranks = append(to.Ranks, layout.RankRef(r))
	}
	if l.Class > 0 { // every microbatch is as large as memory is planned for
		out.Class = func(int64, actors.Ref, int) int32 { return l.Class }
	}
	out.Memory = simMemory(l)
	return out
}

// simMemory accounts memory as lfactor plan does, in the order of the simulated run: one replay for each set
// of ranks that hand activations to one another.
func simMemory(l *layout.Layout) sim.Memory {
	type lane struct{ dp, place int }
	numbers := map[lane]int{}
	base, update, lanes := make([]int64, len(l.Ranks)), make([]int64, len(l.Ranks)), make([]int, len(l.Ranks))
	for r, part := range l.Ranks {
		m := l.Memory(r)
		base[r], update[r] = m.Params+m.State, m.Grads+m.Update
		at := lane{dp: part.Coord.DP}
		if l.Program.Homes == nil { // rows are pipeline ranks, each of several ranks side by side
			at.place = l.Design.Mesh.Move(r, topology.PP, 0)
		}
		if _, known := numbers[at]; !known {
			numbers[at] = len(numbers)
		}
		lanes[r] = numbers[at]
	}
	replays := make([]*layout.Replay, len(numbers)) // each is of one part of a run, if it runs in parts
	of := func(rank int) *layout.Replay {
		x := replays[lanes[rank]]
		if x == nil {
			x = l.NewReplay()
			replays[lanes[rank]] = x
		}
		return x
	}
	return sim.Memory{Limit: l.Design.Memory, Base: func(r int) int64 { return base[r] }, Update: func(r int) int64 {
		of(r).Updated(l.Ranks[r].Row)
		return update[r]
	}, Begin: func(rank int, j *actors.Job) int64 {
		return of(rank).Begin(l.Ranks[rank].Row, j.Action, j.Class)
	}, End: func(rank int, j *actors.Job) int64 {
		of(rank).End(l.Ranks[rank].Row, j.Action, j.Class)
		return of(rank).Peak()[l.Ranks[rank].Row]
	}, Forget: func(rank int) { replays[lanes[rank]] = nil }}
}

// Prices are those of a described machine, one device a rank in order.
func Prices(m *cost.Machine) sim.Prices {
	// what a loader reads is tokens in host memory, on their way to a device
	return sim.Prices{Copy: 1e9 / m.Copy, Read: 1e9 / m.Copy,
		Job: func(rank int, j *actors.Job, s *core.Segment) int64 {
			switch {
			case j.Kind == actors.LoadBatch:
				return 0
			case rank < 0:
				return 1e6 // committing: off the path unless it is late
			case j.Kind == actors.SnapshotJob || j.Kind == actors.WriteJob || j.Kind == actors.RestoreJob:
				return 1e6
			}
			return cost.Nanoseconds(m.SegmentOn(rank, s.Flops, s.Bytes, s.Calls))
		},
		Link: func(from, to int) sim.Link {
			if from < 0 || to < 0 {
				return sim.Link{Latency: cost.Nanoseconds(m.Remote.Latency), Out: -1, In: -1}
			}
			l, at := m.Link(from, to), int32(0)
			if m.Host(from) != m.Host(to) {
				at = 2
			}
			return sim.Link{Latency: cost.Nanoseconds(l.Latency), PerByte: 1e9 * l.PerByte,
				Out: int32(4*from) + at, In: int32(4*to) + at + 1}
		},
		Collective: func(ranks []int, bytes int64, apart bool) int64 {
			if apart {
				return cost.Nanoseconds(m.Exchange(ranks, bytes))
			}
			n := int64(len(ranks))
			return cost.Nanoseconds(m.Collective(collective.AllReduce, ranks, bytes*n/(2*(n-1))))
		},
		Sends: func(ranks []int, bytes int64, apart bool) []collective.Send {
			n := int64(len(ranks))
			if apart {
				return collective.Exchange(len(ranks), bytes)
			}
			return m.Sends(collective.AllReduce, ranks, bytes*n/(2*(n-1)))
		},
	}
}

// Why says how a simulated run ended badly.
func Why(r *sim.Result) string {
	if r.Stall != nil {
		return r.Stall.Error()
	}
	return r.Failed
}

// OnePass is a pass of one segment without communication.
var OnePass = []core.Segment{{}}
