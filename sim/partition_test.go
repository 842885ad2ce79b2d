package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
)

// inTurn is one part after the other, the last first.
func inTurn(n int, do func(i int)) {
	for i := range n {
		do(n - 1 - i)
	}
}

// both runs a layout with one queue and in parts, and returns what came of both.
func both(l *sim.Layout, p sim.Prices, seed uint64) (whole, parts *sim.Result) {
	o := sim.Options{Seed: seed, Whole: true}
	whole = sim.New(l, p, o).Run()
	o.Each = inTurn
	return whole, sim.New(l, p, o).Run()
}

// TestApartSteps: replicas that run by themselves go through several steps as in one queue, whatever the
// seed, replicas that are unlike one another too.
func TestApartSteps(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		l := described(t, topology.Grid(2, 1+int(seed%4), 2), 4, 1+int(seed%2), 1, 3).Layout()
		p := modelled()
		p.Job = func(rank int, _ *actors.Job, s *core.Segment) int64 {
			return s.Flops + int64(uint64(rank+1)*(seed+1)*2654435761%997)
		}
		whole, parts := both(l, p, seed)
		require.False(t, parts.Torn)
		if parts.Parts > 0 {
			require.Equal(t, 1+int(seed%4), parts.Parts)
			parts.Parts = 0
		}
		require.Equal(t, whole, parts)
	}
}

// TestApartTorn: where a rank is heard of earlier than its program says, because a job fails for want of
// memory or prices change within the run, what comes of the run is still that of one queue.
func TestApartTorn(t *testing.T) {
	t.Parallel()
	torn := 0
	for seed := range uint64(20) {
		l := described(t, topology.Grid(2, 4, 2), 8, 1, 1, 2).Layout()
		l.Memory.Limit = 100
		l.Memory.Foot = func(rank int, j *actors.Job) (int64, int64) {
			if rank == int(seed)%16 && j.Action.Kind == plan.B && int(j.Action.Micro) == int(seed)%8 {
				return 200, 0
			}
			return 1, 0
		}
		whole, parts := both(l, modelled(), seed)
		require.Contains(t, whole.Failed, "out of memory")
		if parts.Torn {
			torn++
		}
		parts.Torn, parts.Parts = false, 0
		require.Equal(t, whole, parts)

		l.Memory.Limit = 0
		p := modelled()
		p.Job = func(rank int, j *actors.Job, s *core.Segment) int64 {
			if j.Step == 2 && rank%4 == int(seed)%4 {
				return s.Flops / 100
			}
			return s.Flops + 10
		}
		whole, parts = both(l, p, seed)
		require.Len(t, whole.Steps, 2)
		if parts.Torn {
			torn++
		}
		parts.Torn, parts.Parts = false, 0
		require.Equal(t, whole, parts)
	}
	require.Positive(t, torn)
}

// TestApartAtOnce: messages that come to a collective at one time come in the order of what led to them, jobs
// that take no time among it, in parts as in one queue.
func TestApartAtOnce(t *testing.T) {
	t.Parallel()
	mesh := topology.Grid(2, 4, 2)
	for seed := range uint64(20) {
		p := modelled()
		p.Job = func(rank int, j *actors.Job, s *core.Segment) int64 {
			switch late := mesh.Replica(max(0, rank)) % 2; {
			case j.Kind == actors.UpdatePhase:
				return 0
			case j.Segment == 1: // replicas end their passes at the same time, half of them by a job of none
				return 1000 + 500*int64(late)
			case j.Segment == 2:
				return 500 - 500*int64(late)
			}
			return 1000
		}
		whole, parts := both(described(t, mesh, 4, 1, 1, 2).Layout(), p, seed)
		require.Equal(t, 4, parts.Parts)
		parts.Parts = 0
		require.Equal(t, whole, parts)
	}
}
