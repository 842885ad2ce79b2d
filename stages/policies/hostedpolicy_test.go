package policies

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWithReadouts: tokens in whose place readouts lie are none, and a batch's own stay as they are.
func TestWithReadouts(t *testing.T) {
	t.Parallel()
	ids := []int32{1, 2, 3, 4, 5, 6, 7}
	require.Equal(t, []int32{1, -1, -1, 4, -1, -1, 7}, withReadouts(ids, []int32{3, 6}, 2))
	require.Equal(t, []int32{1, 2, 3, 4, 5, 6, 7}, ids)
	require.Equal(t, ids, withReadouts(ids, []int32{3, 6}, 0))
}
