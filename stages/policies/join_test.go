package policies

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestJoin: velocities are guided as lerobot guides them (bench/golden/join.py).
func TestJoin(t *testing.T) {
	b, err := os.ReadFile("testdata/join.json")
	require.NoError(t, err)
	var cases []struct {
		Executed, Delay, Horizon int
		Time                     float64
		X, V, Want               [][]float32
		Before                   [][]float64
	}
	require.NoError(t, json.Unmarshal(b, &cases))
	require.Len(t, cases, 5)
	flat := func(rows [][]float32) (out []float32) {
		for _, r := range rows {
			out = append(out, r...)
		}
		return out
	}
	for i, c := range cases {
		j := &Join{Before: Chunk{scaled: c.Before}, Executed: c.Executed, Delay: c.Delay, Horizon: c.Horizon,
			Most: JoinMost}
		v := flat(c.V)
		j.guide(v, flat(c.X), len(c.V[0]), c.Time)
		require.InDeltaSlice(t, flat(c.Want), v, 2e-5, "case %d", i) // ten times a difference of a few, in float32
	}
}
