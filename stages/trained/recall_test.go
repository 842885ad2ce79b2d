package trained

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRank: a query's own text is behind all that are nearer or as near.
func TestRank(t *testing.T) {
	out := &Recall{At: map[int]float64{}}
	(&search{texts: [][]float64{{1, 0}, {0, 1}, {0.6, 0.8}, {1, 0}}, queries: [][]float64{{0, 1}, {1, 0}},
		own: []int{2, 0}}).rank(out)
	require.Equal(t, &Recall{Queries: 2, Texts: 4, At: map[int]float64{1: 0, 5: 1, 10: 1}, Mean: 0.5}, out)
}
