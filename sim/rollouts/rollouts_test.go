package rollouts

import (
	"flag"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/rounds"
)

var long = flag.Bool("long", false, "10,000 seeds, and all planted faults")

// drawnWorld is a world of a seed: of any schedule, with samplers of any kind and faults of all kinds.
func drawnWorld(seed uint64) World {
	rng := rand.New(rand.NewPCG(seed, 9))
	w := World{Seed: seed, Groups: 1 + rng.IntN(5), Each: 1 + rng.IntN(3), Rounds: 12,
		Samplers: 1 + rng.IntN(4),
		Hold:     1 + rng.IntN(4), Length: 40, Spread: 1, Token: 0.01, Train: rng.Float64() * 2,
		Load: rng.Float64() * 0.2, Publish: rng.Float64() * 0.2, Patience: 1, Slow: 20}
	w.Schedule = rounds.Schedule{Staleness: rng.Int64N(5), Updates: 1 + rng.Int64N(3)}
	if rng.IntN(2) == 0 {
		w.Schedule.Span = 1 + rng.Int64N(60)
	}
	if rng.IntN(4) > 0 {
		w.Dies, w.Hangs, w.Twice, w.Slows = 0.1, 0.1, 0.1, 0.1
	}
	return w
}

// TestSeeds: whatever samplers do, no token is too old where it is trained on, every answer is trained on
// in its turn, and what is trained on has the lengths of what is drawn. Every seed runs twice.
func TestSeeds(t *testing.T) {
	t.Parallel()
	n := uint64(600)
	if *long {
		n = 10_000
	}
	ages := map[int64]int{}
	lost := 0
	for seed := range n {
		w := drawnWorld(seed)
		a, err := Run(w)
		require.NoError(t, err, "seed %d %+v", seed, w)
		require.Len(t, a.Trained, int(w.Rounds)*w.Groups*w.Each)
		if seed%10 == 0 {
			b, err := Run(w)
			require.NoError(t, err)
			require.True(t, reflect.DeepEqual(a, b), "seed %d", seed)
		}
		ages[a.Age]++
		lost += a.Lost
	}
	require.Len(t, ages, 5, "every age that is allowed is met: %v", ages)
	require.Greater(t, lost, int(n)/2)
}

// TestBias: what is trained on has the lengths of what is drawn, with samplers that die, hang and are slow;
// where old answers are dropped instead, the long ones are missing.
func TestBias(t *testing.T) {
	t.Parallel()
	w := World{Schedule: rounds.Schedule{Staleness: 2, Updates: 1}, Groups: 8, Each: 1, Rounds: 2000,
		Samplers: 4,
		Hold:     8, Length: 100, Spread: 1, Token: 0.01, Train: 1, Patience: 3, Dies: 0.02, Hangs: 0.02, Twice: 0.02,
		Slows: 0.05, Slow: 5}
	r, err := Run(w)
	require.NoError(t, err)
	require.LessOrEqual(t, ks(r.Trained, r.Drawn), 0.01)
	d := discarding(w)
	require.Greater(t, ks(d.Trained, d.Drawn), 0.2)
	require.LessOrEqual(t, d.Age, int64(2))
}

// TestAhead: a sampler that works while the trainer does gives a step of the longer of the two times, not of
// their sum; no staleness gives the sum.
func TestAhead(t *testing.T) {
	t.Parallel()
	w := World{Schedule: rounds.Schedule{Updates: 1}, Groups: 4, Each: 1, Rounds: 40, Samplers: 2, Hold: 4,
		Length: 100, Token: 0.01, Train: 1.5, Load: 0.1, Publish: 0.2}
	r, err := Run(w)
	require.NoError(t, err)
	require.InDelta(t, 1+1.5+0.1+0.2, r.Step, 1e-9)
	w.Schedule.Staleness = 1
	r, err = Run(w)
	require.NoError(t, err)
	require.InDelta(t, 1.5+0.2, r.Step, 1e-9)
	w.Train, w.Samplers = 0.3, 1
	r, err = Run(w)
	require.NoError(t, err)
	require.InDelta(t, 1+0.1, r.Step, 1e-9, "one sampler never rests")
	require.InDelta(t, 0.1/1.1, r.Idle, 0.01)
	require.Equal(t, int64(1), r.Age)
}

// TestKS: equal samples have the distance 0, and disjoint ones 1.
func TestKS(t *testing.T) {
	require.Zero(t, ks([]float64{1, 2, 2}, []float64{2, 1, 2}))
	require.Equal(t, 1.0, ks([]float64{1, 2}, []float64{3}))
	require.InDelta(t, 0.5, ks([]float64{1, 2}, []float64{2, 2}), 1e-12)
}
