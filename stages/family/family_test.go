package family

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestClaims holds every published size to the parameter count that its file claims.
func TestClaims(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range configs.Models() {
		c, err := configs.Published(name)
		require.NoError(t, err, name)
		m, err := Build(c, 0)
		require.NoError(t, err, name)
		require.Equal(t, int64(c.Parameters), m.Count(), name)
		seen[c.ModelType] = true
	}
	seen["vlm"] = true // pairs of one's own, none of them published
	for _, f := range Names() {
		require.True(t, seen[f], "family %s has no published size in configs/models", f)
	}
}

// TestBalanced: cuts cover the blocks, none is empty, and the heaviest stage is within one block of the mean.
func TestBalanced(t *testing.T) {
	c, err := configs.Published("llama/3-8b")
	require.NoError(t, err)
	m, err := Build(c, 0)
	require.NoError(t, err)
	for n := 1; n <= len(m.Blocks); n++ {
		cuts, err := m.Balanced(n)
		require.NoError(t, err)
		require.Len(t, cuts, n+1)
		require.Equal(t, []int{0, len(m.Blocks)}, []int{cuts[0], cuts[n]})
		total, most := 0.0, 0.0
		for s := range n {
			require.Less(t, cuts[s], cuts[s+1], "stage %d of %d is empty", s, n)
			w := 0.0
			for _, b := range m.Blocks[cuts[s]:cuts[s+1]] {
				w += b.Weight
			}
			total, most = total+w, max(most, w)
		}
		require.LessOrEqual(t, most, total/float64(n)+2)
	}
	_, err = m.Balanced(len(m.Blocks) + 1)
	require.ErrorContains(t, err, "try plan.pp=")
}
