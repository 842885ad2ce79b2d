package fidelity

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestContextGains: on links that are fast enough a balanced ring is the faster one, and on slow ones both
// wait for their neighbours.
func TestContextGains(t *testing.T) {
	fast, err := ContextPaced(1e6, false)
	require.NoError(t, err)
	slow, err := ContextPaced(64e3, false)
	require.NoError(t, err)
	for i := range fast {
		require.Greater(t, Gain(fast[i].Sim), 0.2, fast[i].Plan)
		require.Less(t, Gain(slow[i].Sim), Gain(fast[i].Sim)/2, slow[i].Plan)
		require.Zero(t, fast[i].Real, "nothing ran for real")
	}
}
