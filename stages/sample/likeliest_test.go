package sample

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLikeliestBySum: the drawn token among the likeliest has the log-probability that it was drawn with, to the bit,
// whatever sum in float32 that has; a token that cannot be drawn leaves the others their own sum.
func TestLikeliestBySum(t *testing.T) {
	z := []float32{3.25, -1.5, 11.75, 11.5, float32(math.Inf(-1))}
	own := logSum(z, 4, float32(math.Inf(-1)))
	require.InDelta(t, 12.3264, own, 1e-3)
	for id := range int32(4) {
		for _, off := range []float32{0, 2e-6, -2e-6} {
			lp := float32(float64(z[id])-own) + off
			got := likeliest(z, 4, logSum(z, id, lp))
			require.Equal(t, []int32{2, 3, 0, 1}, []int32{got[0].ID, got[1].ID, got[2].ID, got[3].ID})
			for _, c := range got {
				require.InDelta(t, float64(z[c.ID])-own, c.LogProb, 4e-6)
				if c.ID == id {
					require.Equal(t, lp, c.LogProb)
				}
			}
		}
	}
}
