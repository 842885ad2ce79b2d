package objective

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGap: the largest difference is that of fresh rows alone, whatever their weight and whichever is larger,
// and one that is no number does not go unseen.
func TestGap(t *testing.T) {
	r := &Rows{LogP: []float32{-1, -2, -3, -4}, Seq: []int32{0, 0, 1, -1}, Weight: []float32{0, 1, 1, 0},
		More: make([]float32, 4*Columns)}
	for i, old := range []float32{-1.25, -1.5, -9, 0} {
		r.More[i*Columns+Old] = old
	}
	of := func() float64 { return Lookup(Gap).Of(&Params{}, r, make([]float64, 4)) }
	require.Zero(t, of(), "nothing is compared")
	r.More[Fresh] = 1
	require.Equal(t, 0.25, of())
	r.More[Columns+Fresh] = 1
	require.Equal(t, 0.5, of())
	r.LogP[0] = float32(math.NaN())
	require.True(t, math.IsNaN(of()))
	require.NotContains(t, Names(), Gap, "nobody trains by it")
}
