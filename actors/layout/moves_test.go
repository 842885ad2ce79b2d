package layout

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/topology"
)

// mixed is a layout of which only what Rebalance reads is there.
func mixed(t *testing.T, ep, groups, nodes int) *Layout {
	m, err := topology.Grid(1, ep, 1).Fold(topology.Dim{Name: topology.EP, Size: ep})
	require.NoError(t, err)
	var s family.Spec
	s.Experts.Router.Groups = groups
	return &Layout{Job: &Job{Mesh: m, Model: &family.Model{Spec: s}, Nodes: nodes}}
}

// fullest is the most rows that a rank has.
func fullest(rows []float64, at []int, ranks int) float64 {
	sums := make([]float64, ranks)
	for e, p := range at {
		sums[p*ranks/len(at)] += rows[e]
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
		got := l.Rebalance(5, []core.Load{{Block: 3, Rows: rows}}, []core.Placed{{Block: 3, Place: old}})
		if got == nil {
			continue
		}
		at := got[0].Place
		require.Equal(t, 3, got[0].Block)
		require.Equal(t, inOrder(16), slices.Sorted(slices.Values(at)))
		require.Less(t, fullest(rows, at, 4), 0.98*fullest(rows, old, 4))
		for e := range at {
			if at[e]/4 == old[e]/4 {
				require.Equal(t, old[e], at[e])
			}
		}
		require.Nil(t, l.Rebalance(6, []core.Load{{Block: 3, Rows: rows}}, got))
	}
	require.Nil(t, l.Rebalance(1, nil, nil))
	busy := []float64{9, 9, 0, 0, 0, 0, 0, 0}
	require.Equal(t, []core.Placed{{Block: 1, Place: []int{0, 6, 2, 3, 4, 5, 1, 7}}},
		l.Rebalance(1, []core.Load{{Block: 1, Rows: busy}}, nil), "as few as possible move")
	// 101 : 100 is a gain of less than a fiftieth
	require.Nil(t, l.Rebalance(1, []core.Load{{Block: 1, Rows: []float64{51, 50, 50, 49, 50, 50, 50, 50}}},
		nil))
}

// TestRebalanceHosts: where groups of experts can be shared out over hosts, a group's experts lie on one.
func TestRebalanceHosts(t *testing.T) {
	rows := []float64{90, 80, 40, 30, 70, 60, 20, 10}
	spread := func(groups, nodes int) (hosts []int) {
		at := mixed(t, 4, groups, nodes).Rebalance(1, []core.Load{{Block: 1, Rows: rows}}, nil)[0].Place
		for _, p := range at {
			hosts = append(hosts, p/4)
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
