package cpu

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNth holds selection to sorting, with many equal numbers and with none.
func TestNth(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		v := make([]float32, 1+r.IntN(60))
		kinds := 1 + r.IntN(80)
		for i := range v {
			v[i] = float32(r.IntN(kinds))
		}
		sorted := slices.Clone(v)
		slices.Sort(sorted)
		slices.Reverse(sorted)
		n := 1 + r.IntN(len(v))
		x, above := nth(slices.Clone(v), n)
		require.Equal(t, sorted[n-1], x)
		require.Equal(t, slices.Index(sorted, x), above)
	}
}

// TestBest: the first places win among equal scores, and what is not a number counts as greatest.
func TestBest(t *testing.T) {
	b := New(1)
	defer b.Close()
	w, idx := b.team.workers[0], make([]int32, 3)
	zero := float32(0)
	w.best(idx, []float32{1, 2, 1, zero / zero, 1}, 10)
	require.Equal(t, []int32{10, 11, 13}, idx)
	w.best(idx, []float32{5, 5, 5, 5}, 0)
	require.Equal(t, []int32{0, 1, 2}, idx)
	w.best(idx, []float32{5}, 7)
	require.Equal(t, []int32{7, -1, -1}, idx)
}
