package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
)

// paced runs steps of a layout and returns when ranks were called slow, by rank, and when each step ended.
func paced(t *testing.T, mesh topology.Mesh, steps int64, o sim.Options) (slow map[int]core.Slowness,
	at map[int]int64, ends []int64) {
	t.Helper()
	l := tinyLayout(t, "1f1b", 1, mesh, 0, false)
	run := core.RunLayout{First: 1, Last: steps, LossScale: core.LossScale{Scale: 1},
		LR: func(int64) float64 { return 1e-3 }, Same: l.Same()}
	slow, at = map[int]core.Slowness{}, map[int]int64{}
	var now int64
	o.See = func(e sim.Event) { now = int64(e.At) }
	o.Report = func(m actors.Message) {
		switch m.Text {
		case core.TopicStep:
			ends = append(ends, now)
		case core.TopicSlow:
			x := core.SlownessOf(m.Values)
			require.NotContains(t, slow, x.Rank, "named once")
			slow[x.Rank], at[x.Rank] = x, m.Step
		}
	}
	res := sim.New(simLayout(l, run), flat(50), o).Run()
	require.Nil(t, res.Stall)
	return slow, at, ends
}

// TestSlowRank: a rank whose jobs take five times as long is named within ten steps and no other is, also
// where it is slow from the beginning and another does the same work; in a thousand steps of jobs that take
// up to twice as long by chance nobody is named.
func TestSlowRank(t *testing.T) {
	for _, mesh := range []topology.Mesh{topology.Grid(2, 2, 1), topology.Grid(4, 1, 1),
		topology.Grid(1, 2, 2)} {
		_, _, ends := paced(t, mesh, 40, sim.Options{Seed: 1, Jitter: 0.5})
		require.Len(t, ends, 40)
		for rank := range mesh.Size() {
			f := sim.Fault{Kind: sim.Straggler, Rank: rank, At: ends[20], For: 1 << 60, Factor: 5}
			slow, at, _ := paced(t, mesh, 40, sim.Options{Seed: 1, Jitter: 0.5, Faults: []sim.Fault{f}})
			require.Len(t, slow, 1, "%v rank %d", mesh, rank)
			require.Contains(t, slow, rank)
			require.LessOrEqual(t, at[rank], int64(21+10))
			require.Equal(t, core.SlowCompute, slow[rank].Cause)
			require.InDelta(t, 5, slow[rank].Now/slow[rank].Usual, 1.5)

			f.At = 0
			slow, at, _ = paced(t, mesh, 20, sim.Options{Seed: 2, Jitter: 0.5, Faults: []sim.Fault{f}})
			if mesh.Replicas() == 1 {
				require.Empty(t, slow, "nobody does the same work, and it was never faster")
				continue
			}
			require.Len(t, slow, 1)
			require.LessOrEqual(t, at[rank], int64(10))
			require.True(t, slow[rank].Twin)
		}
		slow, _, _ := paced(t, mesh, 1000, sim.Options{Seed: 3, Jitter: 1})
		require.Empty(t, slow, "a clean run")
	}
}

// TestSlowAll: when all ranks become slow nobody is called the slow one.
func TestSlowAll(t *testing.T) {
	mesh := topology.Grid(2, 2, 1)
	_, _, ends := paced(t, mesh, 40, sim.Options{Seed: 1})
	var faults []sim.Fault
	for rank := range mesh.Size() {
		faults = append(faults, sim.Fault{Kind: sim.Straggler, Rank: rank, At: ends[20], For: 1 << 60,
			Factor: 4})
	}
	slow, _, _ := paced(t, mesh, 40, sim.Options{Seed: 1, Faults: faults})
	require.Empty(t, slow)
}
