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

// A loop whose rounds do not fit into the buffer yet holds one round's pieces, and not those of all; what was taken before
// it stays as it was.
func TestScratchReleased(t *testing.T) {
	b := newBackend(levels()[0], 1)
	s := &scratch{pool: b.shared.pool}
	kept := s.f32(100)
	kept[99] = 7
	before := s.pool.Live()
	for range 50 {
		m := s.mark()
		s.f32(1 << 20)[0] = 1
		s.f32(1 << 18)[0] = 2
		require.Less(t, s.pool.Live()-before, int64(8*(1<<20+1<<18)))
		s.release(m)
		require.Equal(t, before, s.pool.Live())
	}
	require.Equal(t, float32(7), kept[99])
	s.reset()
	require.GreaterOrEqual(t, len(s.buf), 100+1<<20+1<<18, "the next task of its size fits")
	s.free()
	require.NoError(t, b.Close())
}
