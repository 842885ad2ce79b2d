package layout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/topology"
)

// Refs of a run, dense and the same in every process.
const (
	CoordinatorRef actors.Ref = 0
	ObserverRef    actors.Ref = 1
	FirstRank      actors.Ref = 2
)

// RankRef is the ref of a rank.
func RankRef(rank int) actors.Ref { return FirstRank + actors.Ref(rank) }

// LoaderRef is the ref of the loader that serves replica dp in process proc.
func (l *Layout) LoaderRef(proc, dp int) actors.Ref {
	return FirstRank + actors.Ref(l.World()+proc*l.Design.Mesh.Replicas()+dp)
}

// ActorName is an actor's name in one word: coordinator, observer, rank3, loader0.1 (of process 0, for replica 1).
func (l *Layout) ActorName(r actors.Ref) string {
	k, size, dps := int(r-FirstRank), l.World(), l.Design.Mesh.Replicas()
	switch {
	case r == CoordinatorRef:
		return "coordinator"
	case r == ObserverRef:
		return "observer"
	case k < size:
		return fmt.Sprintf("rank%d", k)
	}
	return fmt.Sprintf("loader%d.%d", (k-size)/dps, (k-size)%dps)
}

// ActorNames are the names of all actors of a run in so many processes.
func (l *Layout) ActorNames(procs int) (out []string) {
	for r := CoordinatorRef; r < FirstRank+actors.Ref(l.World()+max(1, procs)*l.Design.Mesh.Replicas()); r++ {
		out = append(out, l.ActorName(r))
	}
	return out
}

// RankLayout is what the behaviour of rank r in process proc knows.
func (l *Layout) RankLayout(r, proc int) *core.RankLayout {
	j, part := l.Design, l.Ranks[r]
	m := j.Mesh
	var groups []core.Group
	for i := range l.axes {
		groups = append(groups, l.along(i, r))
	}
	for _, t := range part.Ties {
		groups = append(groups, core.Group{Members: refs(t), Pos: slices.Index(t, r)})
	}
	return &core.RankLayout{Rank: r, Program: l.Program, Row: part.Row, Eval: l.Eval, Groups: groups, Ports: l.Ports,
		Lower: l.Lower, Absent: l.Absent, Shaped: l.Class > 0, Update: l.updateSegments(&part), Early: l.Early(&part),
		Moving: l.movingSegments(&part), Routes: l.routes(r), Peer: func(stage int) actors.Ref {
			return RankRef(m.Move(r, topology.PP, l.pipe[stage]))
		}, Loader: l.LoaderRef(proc, part.Coord.DP), Coordinator: CoordinatorRef, Credits: j.Credits}
}

// along is the group that rank r is in by one of axes. All members have one list: lists of their own would be as many
// numbers as the square of the ranks.
func (l *Layout) along(axis, r int) core.Group {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lists == nil {
		l.lists = make([]map[int]core.Group, len(l.axes))
	}
	if _, known := l.lists[axis][r]; !known {
		if l.lists[axis] == nil {
			l.lists[axis] = map[int]core.Group{}
		}
		ranks := l.members(r, l.axes[axis].side, l.axes[axis].axes)
		all := refs(ranks)
		for i, x := range ranks {
			l.lists[axis][x] = core.Group{Members: all, Pos: i}
		}
	}
	return l.lists[axis][r]
}

func refs(ranks []int) (out []actors.Ref) {
	for _, x := range ranks {
		out = append(out, RankRef(x))
	}
	return out
}

// Buddies are, by rank, the ranks that keep second copies of its state in memory: in other processes, so that one that
// is lost takes no state along, nor the one that leads with any other, nor its host with any other host. Hosts are those
// of the processes, nil where each counts as on one of its own. With one process there are none.
func (l *Layout) Buddies(procs int, hosts []string) [][]int {
	if procs < 2 {
		return nil
	}
	by := make([][]int, procs)
	for r := range l.World() {
		p := l.Owner(r, procs)
		by[p] = append(by[p], r)
	}
	return core.Spread(by, hosts)
}

// Alone reports whether every rank carries out an update that is committed without hearing from others,
// as without ZeRO.
func (l *Layout) Alone() bool {
	for i := range l.Ranks {
		if len(l.Exchanges(&l.Ranks[i], Apply)) > 0 {
			return false
		}
	}
	return true
}

// Same lists, by rank, the others that hold the same state: replicas without ZeRO.
func (l *Layout) Same() [][]int {
	by := map[string][]int{}
	keys := make([]string, l.World())
	for r := range keys {
		part := l.Ranks[r]
		var key strings.Builder
		for _, h := range part.All {
			fmt.Fprintln(&key, h.Name, h.Region.Intervals(h.Param))
		}
		for _, p := range part.Params {
			fmt.Fprintln(&key, p.Name, p.Own.Intervals(p.Param))
		}
		keys[r] = key.String()
		by[keys[r]] = append(by[keys[r]], r)
	}
	out := make([][]int, len(keys))
	for r, key := range keys {
		for _, o := range by[key] {
			if o != r {
				out[r] = append(out[r], o)
			}
		}
	}
	return out
}

// Owner is the process that runs a rank: pipeline stages are dealt to processes in contiguous runs of ranks.
func (l *Layout) Owner(rank, procs int) int { return rank * max(1, procs) / l.World() }

// OwnerOf is the process of any actor of the run: the coordinator and the observer live in process 0.
func (l *Layout) OwnerOf(r actors.Ref, procs int) int {
	size := l.World()
	switch k := int(r - FirstRank); {
	case k < 0:
		return 0
	case k < size:
		return l.Owner(k, procs)
	default:
		return (k - size) / l.Design.Mesh.Replicas()
	}
}
