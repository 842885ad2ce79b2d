package configs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPatterned: a pattern's number is one that a rank or an alpha can be, and no text that only reads like one.
func TestPatterned(t *testing.T) {
	p, n, err := Patterned("*.q_proj=4")
	require.NoError(t, err)
	require.Equal(t, "*.q_proj", p)
	require.EqualValues(t, 4, n)
	for _, bad := range []string{"*.q_proj", "*.q_proj=", "*=0", "*=-1", "*=NaN", "*=Inf", "*=1e30", "*=four"} {
		_, _, err := Patterned(bad)
		require.Error(t, err, bad)
	}
}
