package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
)

// slowDisk prices the jobs of a save so that writing takes as long as one or several steps.
func slowDisk(p sim.Prices, write, begin int64) sim.Prices {
	job := p.Job
	p.Job = func(rank int, j *actors.Job, s *core.Segment) int64 {
		switch j.Kind {
		case actors.SnapshotJob:
			return 3000 + write/2
		case actors.WriteJob:
			return write
		case actors.BeginJob, actors.CommitJob:
			return begin
		case actors.RestoreJob:
			return 2000
		}
		return job(rank, j, s)
	}
	return p
}

// TestLateControl: messages without data come late, writing a checkpoint takes as long as a step or
// several, and in most runs a rank dies and comes back. The run ends only when its last save is durable,
// and goes back only to a state that was.
func TestLateControl(t *testing.T) {
	t.Parallel()
	seeds := uint64(300)
	if *long {
		seeds = 5000
	} else {
		t.Log("300 seeds instead of 5,000: add -long")
	}
	back := 0
	for seed := range seeds {
		mesh, micro := topology.Grid(2, 1, 2), 4
		if seed%4 == 3 { // deep enough that a rank runs out of credits
			mesh, micro = topology.Grid(4, 1, 1), 6
		}
		l := described(t, mesh, micro, 1, 1, 4).Layout()
		l.Run.SaveEvery, l.Run.SaveAtEnd = int64(seed%3), seed%5 != 0
		l.Run.OptimSteps = int64(seed % 2 * 7)
		p := slowDisk(modelled(), 1+int64(seed%4)*150000, 1+int64(seed%5)*40000)
		if job := p.Job; seed%4 == 3 {
			p.Job = func(rank int, j *actors.Job, s *core.Segment) int64 { // the last rank is slow
				return job(rank, j, s) * int64(1+rank/3*40)
			}
		}
		o := sim.Options{Seed: seed, Jitter: 0.5, Late: 1 + int64(seed%3)*20000}
		plain := sim.NewMonitor(l)
		r := sim.New(l, p, plain.Attach(o)).Run()
		require.Empty(t, plain.End(r, 4), "seed %d", seed)
		o.Faults = sim.Draw(seed, 1+int(seed%2), len(l.Ranks), int64(r.Time), sim.Restart)
		mon := sim.NewMonitor(l)
		again := sim.New(l, p, mon.Attach(o)).Run()
		require.Empty(t, mon.End(again, 4), "seed %d with %v", seed, o.Faults)
		if again.Time > r.Time {
			back++
		}
	}
	require.Greater(t, back, int(seeds)/2)
}
