package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/kernels/grad"
)

// TestKeepChunks: the newest chunks of a sequence may keep their activations while older ones are computed again. The losses are the
// same to the bit, because recomputing gives what was there; memory lies between recomputing everything and nothing, grows with
// the chunks that are kept, and does not grow with the number of sequences: keys and values lie in as many slots as chunks are
// under way.
func TestKeepChunks(t *testing.T) {
	const chunks, rows = 8, 128
	// What the chunks of one sequence send over the border, forward and backward, in bytes: float32 of 16 features each. As much may wait for a
	// neighbour that has no processor just then, or may not. A chunk that is kept longer takes more than twice that.
	const waiting = 2 * rows * 16 * 4
	m := tiny(false)
	run := func(keep, micro int, rc grad.Recompute) ([]float64, float64) {
		s := scheduled{name: "chunkpipe", pp: 2, dp: 1, tp: 1, chunks: chunks, rows: rows, micro: micro, rc: rc, keep: keep}
		losses, peaks := s.train(t, m, 1)
		return losses, peaks[0]
	}
	want, all := run(0, 2, grad.RecomputeNone)
	last := 0.0
	for _, keep := range []int{0, 2, 4, chunks} {
		losses, peak := run(keep, 2, grad.RecomputeFull)
		require.Equal(t, want, losses, "keep %d", keep)
		require.Greater(t, peak, 0.99*last, "keep %d", keep)
		last = peak
		_, more := run(keep, 4, grad.RecomputeFull)
		require.InDelta(t, peak, more, waiting, "keep %d: peak bytes of 2 and of 4 sequences", keep)
	}
	require.InDelta(t, all, last, waiting, "keeping every chunk is recomputing nothing")
	_, least := run(0, 2, grad.RecomputeFull)
	require.Less(t, least, 0.9*all)
}

// TestChunkOfPackedSequences: a microbatch of several sequences cannot be cut.
func TestChunkOfPackedSequences(t *testing.T) {
	l := &Loader{Chunks: 2, Read: func(int64, int) ([]Microbatch, error) {
		return []Microbatch{{Cu: []int32{0, 4, 8}, IDs: make([]int32, 8)}}, nil
	}}
	_, err := l.Run(actors.Job{Kind: actors.LoadBatch})
	require.ErrorContains(t, err, "has 2 sequences")
}
