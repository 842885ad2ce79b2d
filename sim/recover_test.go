package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
)

// redundant is a run whose ranks keep copies with buddies, hold the same state as others, or neither.
func redundant(t *testing.T, seed uint64) *sim.Layout {
	mesh := topology.Grid(2, 1, 2)
	if seed%3 == 0 {
		mesh = topology.Grid(2, 2, 1)
	}
	l := described(t, mesh, 4, 1, 1, 6).Layout()
	l.Run.SaveEvery, l.Run.SaveAtEnd = int64(seed%4), seed%5 != 0
	l.Run.OptimSteps = int64(seed % 2 * 7)
	n := len(l.Ranks)
	for i := range n {
		if seed%6 == 0 { // the other replica of its stage
			l.Run.Same = append(l.Run.Same, []int{mesh.Move(i, topology.DP, 1-mesh.At(i, topology.DP))})
		}
	}
	if seed%7 != 0 {
		l.Run.Keep = []int64{core.KeepAuto, 1, 2, 3}[seed/7%4]
		for i := range n {
			l.Run.Buddy = append(l.Run.Buddy, (i+n/2)%n)
		}
	}
	return l
}

// TestRecoverySources: ranks die at any moment, one or several, also while others come back, and the state of those that come back is
// another rank's, or a copy's that its buddy kept, or the checkpoint's: what the monitor promises holds in all, and nobody reads a
// checkpoint where there is something newer in memory.
func TestRecoverySources(t *testing.T) {
	seeds := uint64(600)
	if *long {
		seeds = 10000
	} else {
		t.Log("600 seeds instead of 10,000: add -long")
	}
	sources := map[int]int{}
	for seed := range seeds {
		l := redundant(t, seed)
		p := slowDisk(modelled(), 1+int64(seed%4)*50000, 1+int64(seed%5)*40000)
		o := sim.Options{Seed: seed, Jitter: 0.5, Late: 1 + int64(seed%3)*20000}
		plain := sim.NewMonitor(l)
		r := sim.New(l, p, plain.Attach(o)).Run()
		require.Empty(t, plain.End(r, 6), "seed %d", seed)
		o.Faults = sim.Draw(seed, 1+int(seed%3), len(l.Ranks), int64(r.Time), sim.Restart)
		mon := sim.NewMonitor(l)
		run := mon.Attach(o)
		report := run.Report
		run.Report = func(m actors.Message) {
			if m.Text == core.TopicBack {
				sources[int(m.Values[1])]++
			}
			report(m)
		}
		again := sim.New(l, p, run).Run()
		require.Empty(t, mon.End(again, 6), "seed %d with %v", seed, o.Faults)
	}
	t.Logf("from disk %d, from copies %d, from another rank %d", sources[0], sources[1], sources[2])
	for _, source := range []int32{core.FromDisk, core.FromCopy, core.FromMember} {
		require.Greater(t, sources[int(source)], int(seeds)/20)
	}
}
