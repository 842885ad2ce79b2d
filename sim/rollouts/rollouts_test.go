package rollouts

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/rounds"
)

// TestBias: where old answers are dropped, as the desk never does, the long ones are missing among what is trained on.
func TestBias(t *testing.T) {
	t.Parallel()
	d := discarding(World{Schedule: rounds.Schedule{Staleness: 2, Updates: 1}, Groups: 8, Each: 1, Rounds: 2000,
		Samplers: 4, Hold: 8, Length: 100, Spread: 1, Token: 0.01, Train: 1})
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
