package block

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSlopes: those of the paper for a power of two, and Bloom's for other numbers of heads.
func TestSlopes(t *testing.T) {
	for n, want := range map[int][]float64{
		1: {0.00390625},
		4: {0.25, 0.0625, 0.015625, 0.00390625},
		6: {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125},
	} {
		require.Equal(t, want, Slopes(n), "%d heads", n)
	}
	l := Slopes(40) // Baichuan 2 13B
	require.Len(t, l, 40)
	require.InDelta(t, 0.84089642, l[0], 1e-8)
	require.InDelta(t, 0.00390625, l[31], 1e-12)
	require.InDelta(t, 0.91700404, l[32], 1e-8)
	require.InDelta(t, 0.2726269, l[39], 1e-7)
}
