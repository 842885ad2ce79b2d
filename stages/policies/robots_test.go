package policies

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset/format/recordings"
)

// Prompts are those of lerobot's Pi05PrepareStateTokenizerProcessorStep, with the steps of numpy's digitize.
func TestPrompt(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Task: pick up the cup, State: -1 0 128 255 255 255;\nAction: ",
		Prompt(" pick_up\nthe cup ",
			[]float64{-1.01, -1, 0, 0.9999, 1, 2}))
	require.Equal(t, "Task: x;\nAction: ", Prompt("x", nil))
}

// Scales bring the numbers that statistics name to -1 and 1, or to mean 0 and deviation 1, and back; a
// range of 0 is lerobot's 1e-8, and quantiles that a set lacks are an error.
func TestAffine(t *testing.T) {
	t.Parallel()
	s := recordings.RobotStats{Min: []float64{-4, 2}, Max: []float64{4, 2}, Mean: []float64{1, 2},
		Std: []float64{2, 0},
		Q01: []float64{-1, 2}, Q99: []float64{3, 2}}
	for how, want := range map[string][]float64{"quantiles": {1, -1}, "min_max": {0.75, -1},
		"mean_std": {1, 0}} {
		a, err := NewAffine(s, how)
		require.NoError(t, err)
		got, err := a.Of([]float64{3, 2})
		require.NoError(t, err)
		require.InDeltaSlice(t, want, got, 1e-7, how)
		require.InDeltaSlice(t, []float64{3, 2}, a.Back(got), 1e-7, how)
		_, err = a.Of([]float64{1})
		require.ErrorContains(t, err, "1 numbers, and the statistics have 2")
	}
	s.Q01, s.Q99 = nil, nil
	_, err := NewAffine(s, "quantiles")
	require.ErrorContains(t, err, "the statistics have no quantiles")
}
