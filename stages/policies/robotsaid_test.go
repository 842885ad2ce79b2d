package policies

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/format/recordings"
)

// TestSaid: what a policy would learn from recordings without a word is said: numbers that a scale brings far from 1,
// cameras of different shapes, data sets of different rates.
func TestSaid(t *testing.T) {
	s := recordings.RobotStats{Min: []float64{-1, 0, 5}, Max: []float64{1, 1, 5}, Mean: []float64{0, 0.001, 5},
		Std: []float64{1, 0.03, 0}, Q01: []float64{-0.9, 0, 5}, Q99: []float64{0.9, 0, 5}}
	for how, far1 := range map[string]bool{"quantiles": true, "min_max": false, "mean_std": false, "identity": false} {
		a, err := NewAffine(s, how)
		require.NoError(t, err)
		said := far("action", s, a, how)
		require.Len(t, said, map[bool]int{true: 1}[far1], how)
		if far1 {
			require.Contains(t, said[0], "action: numbers 1 (from 0) differ rarely, and policy.normalize = quantiles brings "+
				"what differs to 2e+08")
		}
	}
	x := &Robots{Chunk: 10, Policy: configs.Policy{Cameras: []string{"top", "wrist"}}}
	x.sets = []*robotSet{{name: "a", rate: 10, shapes: map[string][2]int{"top": {64, 96}, "wrist": {80, 80}, "x": {1, 1}}},
		{name: "b", rate: 30, shapes: map[string][2]int{"top": {64, 96}, "wrist": {64, 96}}}, {name: "c", rate: 10}}
	said := x.Said()
	require.Len(t, said, 2)
	require.Contains(t, said[0], "a: cameras have different heights and widths, top (64×96), wrist (80×80): all are scaled")
	require.Equal(t, "a has 10 steps a second and b 30: the 10 actions of a chunk cover 1 and 0.333 s", said[1])

	// a checkpoint keeps what an export says again
	text, err := json.Marshal(x.Kept())
	require.NoError(t, err)
	var k KeptRobots
	require.NoError(t, json.Unmarshal(text, &k))
	require.Equal(t, said[:1], (&Robots{Policy: configs.Policy{Cameras: k.Cameras}, sets: k.sets()}).allUnlike())
}
