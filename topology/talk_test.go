package topology

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTalks: processes talk along the axes that cross their borders, and most along those whose ranks exchange most.
func TestTalks(t *testing.T) {
	require.Equal(t, []Talk{{0, 1, 2 * 4}, {2, 3, 2 * 4}, {0, 2, 0}, {1, 3, 0}}[:1],
		Grid(2, 1, 2).Talks(2), "a pipeline of two; tp is inside a process")
	require.Equal(t, []Talk{{0, 1, 1}, {0, 2, 4}, {1, 3, 4}, {2, 3, 1}}, Grid(2, 2, 1).Talks(4))
	require.Equal(t, []Talk{{0, 1, 64}}, Grid(1, 1, 2).Talks(2))
	require.Equal(t, []Talk{{0, 1, 4}, {0, 3, 4}, {1, 2, 4}, {2, 3, 4}}, Grid(4, 1, 1).Talks(4), "round")
	folded, err := Grid(1, 4, 1).Fold(Dim{EDP, 2}, Dim{EP, 2})
	require.NoError(t, err)
	require.Equal(t, []Talk{{0, 1, 1 + 16}, {0, 2, 1}, {0, 3, 1}, {1, 2, 1}, {1, 3, 1}, {2, 3, 1 + 16}},
		folded.Talks(4), "experts' axes lie over the same ranks")
	require.Empty(t, Grid(2, 2, 2).Talks(1))
}
