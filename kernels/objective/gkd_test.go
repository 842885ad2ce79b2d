package objective

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDivergences: divergences of a student from a teacher and their gradients are TRL's (bench/golden/gkd.py).
func TestDivergences(t *testing.T) {
	text, err := os.ReadFile("testdata/gkd.json")
	require.NoError(t, err)
	var g struct {
		Student, Teacher [][]float32
		Targets          []int
		Cases            []struct {
			Mix, Loss float64
			Gradient  [][]float64
		}
	}
	require.NoError(t, json.Unmarshal(text, &g))
	require.Len(t, g.Cases, 4)
	for _, c := range g.Cases {
		loss := 0.0
		for i, z := range g.Student {
			grad := make([]float64, len(z))
			if g.Targets[i] >= 0 {
				loss += Lookup("gkd").Logits(&Params{Mix: c.Mix}, z, g.Teacher[i], grad) / 4
				for k := range grad {
					grad[k] /= 4
				}
			}
			require.InDeltaSlice(t, c.Gradient[i], grad, 1e-6, "%g, row %d", c.Mix, i)
		}
		require.InDelta(t, c.Loss, loss, 1e-6, "%g", c.Mix)
	}
}
