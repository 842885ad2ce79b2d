package host

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAdded: losses that are to be added in any order have so few digits that their sum is exact; without fixed point
// they stay as they are.
func TestAdded(t *testing.T) {
	r, x := &Rank{c: RankConfig{FixedPoint: true}}, rand.New(rand.NewPCG(1, 9))
	var want, plain float64
	for order := range 20 {
		draws, sum, raw := rand.New(rand.NewPCG(2, 9)), 0.0, 0.0
		losses := make([]float64, 200)
		for i := range losses {
			losses[i] = float64(float32(math.Ldexp(draws.Float64(), draws.IntN(60)-45)))
		}
		for _, i := range x.Perm(len(losses)) {
			sum, raw = sum+r.added(losses[i]), raw+losses[i]
		}
		if order == 0 {
			want, plain = sum, raw
		}
		require.Equal(t, want, sum)
		require.InDelta(t, raw, sum, 200*lossUnit)
		plain = min(plain, raw)
		if order == 19 {
			require.NotEqual(t, plain, want, "as they are they have a sum for each order")
		}
	}
	require.True(t, math.IsNaN(r.added(math.NaN())))
	require.Equal(t, 0.1, (&Rank{}).added(0.1))
}
