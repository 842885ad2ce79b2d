package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
)

// spiky is a run of eight steps on eight ranks, of which the samples of some have large gradients until they
// are left aside; it counts how often that is done.
func spiky(t *testing.T, seed uint64) (l *sim.Layout, times *int) {
	l, times = described(t, topology.Grid(2, 2, 2), 4, 2, 1, 8).Layout(), new(int)
	l.Run.SaveEvery, l.Run.Recover = 1+int64(seed%3), true
	l.Run.Spikes = core.Spikes{Norm: 3, After: 1, Back: 1 + int64(seed%4), Most: 3}
	for i := range l.Ranks {
		l.Run.Norms = append(l.Run.Norms, []int32{int32(i)})
	}
	large := map[int64]int{2 + int64(seed%3): 1, 5 + int64(seed%2): 1 + int(seed%3)} // how often in a row
	l.Norm = func(step int64) float64 {
		if large[step] > 0 {
			return 400
		}
		return 1
	}
	l.Run.Place = func(step int64) string { return "" }
	l.Run.Aside = func(step, first, behind int64) string {
		large[behind]--
		*times++
		return ""
	}
	return l, times
}

// TestSpikes: a step of large gradients is not committed and is taken again with other samples, alone or together with
// steps before it, with ranks that are slow, lost and late at any time too; one that stays large ends the run.
func TestSpikes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		l, times := spiky(t, seed)
		o := sim.Options{Seed: seed, Jitter: 0.5}
		if seed%3 == 0 {
			o.Faults = append(o.Faults, sim.Fault{Kind: sim.Restart, Rank: int(seed % 7), At: 1 +
				int64(seed*7919%200000), For: 1 + int64(seed*31%5000)})
		}
		mon := sim.NewMonitor(l)
		r := sim.New(l, modelled(), mon.Attach(o)).Run()
		require.Empty(t, mon.End(r, 8), "seed %d with %v", seed, o.Faults)
		require.GreaterOrEqual(t, *times, 2, "seed %d", seed)
	}
	l, _ := spiky(t, 0)
	l.Norm = func(step int64) float64 { return map[bool]float64{true: 400, false: 1}[step == 4] }
	r := sim.New(l, modelled(), sim.Options{}).Run()
	require.Contains(t, r.Failed, "step 4: gradient norm")
	require.Contains(t, r.Failed, "4 times in a row")
}
