package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
)

// TestCommitKilled kills a rank at, just before and just after every message of the commits of a run: Ready,
// Commit, and the end of the job that changes parameters. The rank comes back, and from then on the monitor
// finds every rank at one step.
func TestCommitKilled(t *testing.T) {
	t.Parallel()
	seeds := uint64(600)
	if *long {
		seeds = 10000
	} else {
		t.Log("600 seeds instead of 10,000: add -long")
	}
	killed := map[actors.Kind]int{}
	for seed := range seeds {
		l := described(t, topology.Grid(2, 2, 2), 4, 2, 1, 3).Layout()
		l.Run.SaveEvery = 1 + int64(seed%2)
		l.Run.LR = func(step int64) float64 { return float64(step) }
		overflows(l, seed)
		o := sim.Options{Seed: seed, Jitter: 0.5}
		var at []actors.Time
		var kinds []actors.Kind
		look := o
		look.See = func(e sim.Event) {
			if e.M.Kind == actors.Ready || e.M.Kind == actors.Commit || e.M.Kind == actors.Done &&
				e.M.Action.Kind == plan.Step {
				at, kinds = append(at, e.At), append(kinds, e.M.Kind)
			}
		}
		require.Empty(t, sim.New(l, modelled(), look).Run().Failed)
		k := int(seed*2654435761) % len(at)
		killed[kinds[k]]++
		o.Faults = []sim.Fault{{Kind: sim.Restart, Rank: int(seed) % len(l.Ranks),
			At: max(1, int64(at[k])+int64(seed%3)-1), For: 1 + int64(seed*31%5000)}}
		mon := sim.NewMonitor(l)
		r := sim.New(l, modelled(), mon.Attach(o)).Run()
		require.Empty(t, mon.End(r, 3), "seed %d with %v", seed, o.Faults)
	}
	for _, kind := range []actors.Kind{actors.Ready, actors.Commit, actors.Done} {
		require.Greater(t, killed[kind], int(seeds)/20)
	}
}
