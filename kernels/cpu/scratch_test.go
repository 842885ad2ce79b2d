package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Scratch that grows keeps one buffer for each thread and one for all, and closing a backend gives all of them back.
func TestScratchFreed(t *testing.T) {
	b := newBackend(levels()[0], 3)
	pool := b.shared.pool
	for _, s := range directShapes {
		for _, c := range directCalls(tensor.F32, s.x, s.w, s.wins) {
			b.Run(c)
		}
		require.Positive(t, pool.Live())
		require.LessOrEqual(t, pool.Buffers(), 1+b.Threads())
	}
	require.NoError(t, b.Close())
	require.Zero(t, pool.Live())
}
