package rehearsal

import (
	"slices"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/topology"
)

// placement says where experts lie behind a step of the simulation.
type placement struct {
	step   int64
	at     map[int][]int                 // by block, the experts of places; others have theirs in order
	shares map[routedKey]map[int]float64 // by rank: rows over even use, as far as they were asked for
}

// recorded is the step of a trace that stands for one of the simulation.
func (x *routed) recorded(step int64) int64 { return x.steps[(step-1)%int64(len(x.steps))] }

// move says where experts go behind a step of the simulation, as in training: by the rows that they had
// since the last move.
func (x *routed) move(step int64, _ []core.Load, now []core.Placed) []core.Placed {
	rows := map[int][]float64{}
	for s := step - int64(x.l.Design.MoveEvery) + 1; s <= step; s++ {
		for k, n := range x.whole {
			if k[0] != x.recorded(s) {
				continue
			}
			b := int(k[1])
			if rows[b] == nil {
				rows[b] = make([]float64, len(n))
			}
			for e := range n { // integers: their sums have no order
				rows[b][e] += float64(n[e])
			}
		}
	}
	var loads []core.Load
	for b, r := range rows {
		loads = append(loads, core.Load{Block: b, Rows: r})
	}
	slices.SortFunc(loads, func(a, b core.Load) int { return a.Block - b.Block })
	to := x.l.Rebalance(step, loads, now)
	next := placement{step: step, at: map[int][]int{}, shares: map[routedKey]map[int]float64{}}
	for _, p := range append(slices.Clone(now), to...) {
		next.at[p.Block] = p.Expert
	}
	x.moved = append(slices.DeleteFunc(x.moved, func(p placement) bool { return p.step >= step }), next)
	return to
}

// share is how many times the rows of even use a rank has for a layer's experts in a step of the simulation.
func (x *routed) share(step int64, rank int, p routing.Place) float64 {
	k, shares := routedKey{p.Step, p.Micro, p.Chunk, p.Block}, x.shares
	if i := x.placed(step); i >= 0 && x.moved[i].at[int(p.Block)] != nil {
		shares = x.moved[i].shares
		if _, known := shares[k][rank]; !known {
			if shares[k] == nil {
				shares[k] = map[int]float64{}
			}
			shares[k][rank] = x.shareAt(rank, p, x.moved[i].at[int(p.Block)])
		}
	}
	if s, ok := shares[k][rank]; ok {
		return s
	}
	return 1
}

// placed is which of the moves the experts of a step lie by, -1 for none.
func (x *routed) placed(step int64) (at int) {
	at = -1
	for i := range x.moved {
		if x.moved[i].step < step {
			at = i
		}
	}
	return at
}

// shareAt is that of one rank and layer where experts lie at places.
func (x *routed) shareAt(rank int, p routing.Place, at []int) float64 {
	members, pos := x.members(rank)
	ep, etp := max(1, x.l.Design.Mesh.Len(topology.EP)), max(1, x.l.Design.Mesh.Len(topology.ETP))
	seats, own := seatsOf(at), len(at)/ep
	first, got, total := pos/etp*own, 0, 0
	for _, m := range members {
		chosen, ok, err := x.traces[m].Read(p)
		if err != nil || !ok { // which reading the trace has found already
			return 1
		}
		got, total = got+x.within(chosen, seats, first, own), total+len(chosen)
	}
	if total == 0 {
		return 1
	}
	return float64(got) * float64(ep) / float64(total)
}

// seatsOf are the places of experts by the experts of places.
func seatsOf(at []int) routing.Seats {
	v := make([]int32, len(at))
	for q, e := range at {
		v[q] = int32(e)
	}
	return routing.SeatsOf(v)
}

// within counts the choices that go to places from first on.
func (x *routed) within(chosen []int32, seats routing.Seats, first, own int) (n int) {
	k := x.l.Design.Model.Spec.Experts.Each
	for i, e := range chosen {
		if e < 0 { // of a kind that another set of experts is for
			continue
		}
		if at := int(seats.Of(e, i/k)); at >= first && at < first+own {
			n++
		}
	}
	return n
}
