package layout

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/configs"
	routers "github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// mixed is a layout of which only what Rebalance reads is there.
func mixed(t *testing.T, ep, groups, nodes int) *Layout {
	m, err := topology.Grid(1, ep, 1).Fold(topology.Dim{Name: topology.EP, Size: ep})
	require.NoError(t, err)
	var s family.Spec
	s.Experts.Router.Groups = groups
	return &Layout{Design: &Design{Mesh: m, Model: &family.Model{Spec: s}, Nodes: nodes}}
}

// fullest is the most rows that a rank has.
func fullest(rows []float64, at []int, ranks int) float64 {
	sums := make([]float64, ranks)
	for p, e := range at {
		copies := 0
		for _, x := range at {
			if x == e {
				copies++
			}
		}
		sums[p*ranks/len(at)] += rows[e] / float64(copies)
	}
	return slices.Max(sums)
}

// TestRebalance: every layer that gains gets as many experts on each rank as before, the fullest rank has
// less, experts that stay on a rank keep their places, and one that has been placed is left alone.
func TestRebalance(t *testing.T) {
	l := mixed(t, 4, 1, 1)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		rows := make([]float64, 16)
		for e := range rows {
			rows[e] = float64(rng.IntN(100)) * float64(1+rng.IntN(10)/9*20)
		}
		old := rng.Perm(16)
		got := l.Rebalance(5, []core.Load{{Block: 3, Rows: rows}}, []core.Placed{{Block: 3, Expert: old}})
		if got == nil {
			continue
		}
		at := got[0].Expert
		require.Equal(t, 3, got[0].Block)
		require.Equal(t, InOrder(16, 0), slices.Sorted(slices.Values(at)))
		require.Less(t, fullest(rows, at, 4), 0.98*fullest(rows, old, 4))
		for p, e := range at {
			if from := slices.Index(old, e); from/4 == p/4 {
				require.Equal(t, from, p)
			}
		}
		require.Nil(t, l.Rebalance(6, []core.Load{{Block: 3, Rows: rows}}, got))
	}
	require.Nil(t, l.Rebalance(1, nil, nil))
	busy := []float64{9, 9, 0, 0, 0, 0, 0, 0}
	require.Equal(t, []core.Placed{{Block: 1, Expert: []int{0, 6, 2, 3, 4, 5, 1, 7}}},
		l.Rebalance(1, []core.Load{{Block: 1, Rows: busy}}, nil), "as few as possible move")
	// 101 : 100 is a gain of less than a fiftieth
	require.Nil(t, l.Rebalance(1, []core.Load{{Block: 1, Rows: []float64{51, 50, 50, 49, 50, 50, 50, 50}}},
		nil))
}

// TestRebalanceHosts: where groups of experts can be shared out over hosts, a group's experts lie on one.
func TestRebalanceHosts(t *testing.T) {
	rows := []float64{90, 80, 40, 30, 70, 60, 20, 10}
	spread := func(groups, nodes int) (hosts []int) {
		at := mixed(t, 4, groups, nodes).Rebalance(1, []core.Load{{Block: 1, Rows: rows}}, nil)[0].Expert
		for e := range at {
			hosts = append(hosts, slices.Index(at, e)/4)
		}
		return
	}
	got := spread(4, 2)
	for g := 0; g < 8; g += 2 {
		require.Equal(t, got[g], got[g+1], "a group is on two hosts: %v", got)
	}
	require.NotEqual(t, got[0], got[4], "the two busy groups are on one host: %v", got)
	flat := spread(4, 1)
	require.False(t, flat[0] == flat[1] && flat[2] == flat[3] && flat[4] == flat[5], flat)
}

// TestRebalanceCopies: copies go to the busiest experts, so that the fullest rank has less than with one
// place each; who stays keeps its place, and each expert has one at least.
func TestRebalanceCopies(t *testing.T) {
	l := mixed(t, 4, 1, 1)
	l.Design.Model.Spec.Experts.Limit.Copies = 4
	rows := []float64{90, 10, 10, 10, 10, 10, 10, 10}
	got := l.Rebalance(1, []core.Load{{Block: 1, Rows: rows}}, nil)
	require.Len(t, got, 1)
	at := got[0].Expert
	require.Len(t, at, 12)
	busy, alone := 0, map[int]bool{}
	for p, e := range at {
		if alone[e] = true; e == 0 {
			busy++
		}
		if before := InOrder(8, 4)[p/3*3 : p/3*3+3]; e > 0 && slices.Contains(before, e) {
			require.Equal(t, e, InOrder(8, 4)[p], "expert %d has moved within its rank", e)
		}
	}
	require.Len(t, alone, 8)
	require.Equal(t, 5, busy, "one place and four copies: %v", at)
	require.InDelta(t, 160.0/4, fullest(rows, at, 4), 8)
	require.Nil(t, l.Rebalance(2, []core.Load{{Block: 1, Rows: rows}}, got))
}

// TestTransfers: of every tensor whose rows are experts each rank takes the rows of the places that are its
// own, from where the expert lay; segments behind the update carry a block at a time.
func TestTransfers(t *testing.T) {
	s := family.Spec{Layers: 2, Hidden: 8, Inter: 8, Heads: 2, KV: 2, HeadDim: 4, Vocab: 16, Eps: 1e-5,
		Rope:    block.Rope{Dim: 4, Theta: 10000, Max: 64, Original: 64, Length: 8},
		MLPs:    []string{"experts", "experts"},
		Experts: block.Experts{Inter: 6, Experts: 8, Each: 2, Router: routers.Router{Normalize: true}}}
	require.NoError(t, s.Check())
	plan := func(zero, every int) *Layout {
		l, err := New(&Design{Model: family.Decoder("toy", s), Zero: zero, Schedule: "1f1b", Micro: 2,
			Rows:      8,
			Mesh:      MeshOf(&configs.Plan{PP: 1, DP: 4, TP: 1, EP: 2, ETP: 1}),
			MoveEvery: every, Optim: optim.Config{Name: "adamw"}})
		require.NoError(t, err)
		return l
	}
	require.Nil(t, plan(1, 0).RankLayout(0, 0).Moving)
	old, to := []int{0, 1, 2, 3, 4, 5, 6, 7}, []int{4, 1, 2, 3, 0, 5, 7, 6} // its own inverse
	for zero, members := range map[int]int{0: 2, 1: 4} {
		l := plan(zero, 3)
		part := &l.Ranks[1] // of edp 0, ep 1
		moves := l.Moves(part)
		require.Len(t, moves, 2)
		require.Equal(t, members, moves[0].Members)
		require.Less(t, moves[0].Block, moves[1].Block)
		got := l.Transfers(part, moves[0], nil, to, 1)
		require.Equal(t, l.Transfers(part, moves[0], old, to, 1), got)
		// the places 4 to 7 have experts 0, 5, 7 and 6; of the state two of them with ZeRO
		want := []Transfer{{0, MovedParam, 0, 0, 0}, {0, MovedParam, 1, 1, 1}, {0, MovedParam, 1, 3, 2},
			{0, MovedParam, 1, 2, 3}, {0, MovedState, 0, 0, 0}, {0, MovedState, 1, 1, 1}}
		each := 6
		if zero == 0 {
			want, each = append(want, Transfer{0, MovedState, 1, 3, 2}, Transfer{0, MovedState, 1, 2, 3}), 8
		}
		require.Equal(t, want, got[:each])
		require.Len(t, got, 3*each)
		rl := l.RankLayout(1, 0)
		require.Len(t, rl.Moving, Gather+3)
		require.Equal(t, rl.Update[:Apply], rl.Moving[:Apply])
		rows := int64(4*(1+2)) * 3 * 8 * 6 * 4 // weights and two moments of four experts in float32
		if zero == 1 {
			rows = (4 + 2*2) * 3 * 8 * 6 * 4
		}
		require.Equal(t, rows*int64(members-1)/int64(members), rl.Moving[Gather].Comms[0].Bytes)
		require.Equal(t, 2*rows, rl.Moving[Gather+2].Bytes)
		require.Equal(t, []core.Issued{{Segment: int32(Gather + 1)}}, rl.Moving[Gather+2].Await)
		require.Empty(t, rl.Moving[Gather+2].Comms)
	}
}
