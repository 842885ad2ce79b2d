package run

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPatienceAgain: evaluations of steps that are taken again count once, and a NaN is lower than nothing.
func TestPatienceAgain(t *testing.T) {
	x := patience{most: 2}
	for _, e := range []struct {
		step int64
		loss float64
		want bool
	}{{3, math.NaN(), false}, {6, 2, false}, {9, 2, false}, {6, 2, false}, {9, 2, false}, {12, 1.5, false},
		{15, 1.5, false}, {18, 1.6, true}} {
		require.Equal(t, e.want, x.enough(e.step, e.loss), "step %d", e.step)
	}
	require.Contains(t, x.text, "2 evaluations since step 12")
}

// TestPatience: a run ends behind the evaluation that is the last in a row which train.patience allows, in
// one process and under a plan behind the same step, with a durable state; repeated it has nothing to do,
// and with more patience it goes on.
func TestPatience(t *testing.T) {
	docs, _ := poisoned()
	rule := []string{"data.split=[8, 2, 0]", "train.eval_interval=3", "train.eval_steps=1", "train.patience=2",
		"train.patience_delta=10", "checkpoint.keep=9"}
	for _, plan := range []string{"plan.pp=1", "plan.dp=2"} {
		dir := t.TempDir()
		losses, said, err := spikeIn(t, dir, docs, append(rule, plan)...)
		require.NoError(t, err, said)
		require.Len(t, losses, 9, "the first evaluation, and two that are not lower by 10")
		require.Contains(t, said, "the run ends: 2 evaluations since step 3")
		require.Contains(t, said, "saved step 9: durable")
		require.NotContains(t, said, "stopped on request")
		losses, said, err = spikeIn(t, dir, docs, append(rule, plan)...)
		require.NoError(t, err, said)
		require.Empty(t, losses)
		require.Equal(t, 1, strings.Count(said, "the run ends"))
		losses, said, err = spikeIn(t, dir, docs, append(rule, plan, "train.patience=3")...)
		require.NoError(t, err, said)
		require.Len(t, losses, 3)
	}
	losses, _, said, err := spikeRun(t, docs, append(rule, "train.patience_delta=0", "train.patience=40")...)
	require.NoError(t, err, said)
	require.Len(t, losses, 45)
}
