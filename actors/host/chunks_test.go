package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
)

// TestKeepChunks: the newest chunks of a sequence may keep their activations while older ones are computed
// again. The losses are the same to the bit, because recomputing gives what was there; memory lies between
// recomputing everything and nothing, grows with the chunks that are kept, and does not grow with the number
// of sequences: keys and values lie in as many slots as chunks are under way.
func TestKeepChunks(t *testing.T) {
	const chunks, rows = 8, 128
	// What the chunks of one sequence send over the border, forward and backward, in bytes: float32 of 16
	// features each. As much may wait for a neighbour that has no processor just then, or may not. A chunk
	// that is kept longer takes more than twice that.
	const waiting = 2 * rows * 16 * 4
	m := tiny(false)
	run := func(keep, micro int, rc grad.Recompute) ([]float64, float64) {
		s := scheduled{name: "chunkpipe", pp: 2, dp: 1, tp: 1, chunks: chunks, rows: rows, micro: micro,
			rc: rc, keep: keep}
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

// TestChunkMemoryPredicted: the peak of a step in chunks is what the plan says, of which gradients of the
// keys and values of all earlier chunks are a fifth: within 2 %, and 5 % where parts of sums may wait for a
// rank that has no processor just then.
func TestChunkMemoryPredicted(t *testing.T) {
	m := tiny(false)
	for _, chunks := range []int{2, 16} {
		for tp, off := range map[int]float64{1: 0.02, 2: 0.05} {
			s := scheduled{name: "chunkpipe", pp: 1, dp: 1, tp: tp, chunks: chunks, rows: 512, micro: 1,
				rc: grad.RecomputeFull}
			l := s.layout(t, m)
			_, peaks := s.train(t, m, 1)
			require.InEpsilon(t, l.Memory(0).Total(), peaks[0], off, "%d chunks, tp %d", chunks, tp)
		}
	}
}

// TestChunkBorders: a chunk has the rows of each packed sequence that lie in it, and their keys up to its
// end; rows beyond the data are padding, of no sequence.
func TestChunkBorders(t *testing.T) {
	l := &Loader{Chunks: 3, Rows: 12, Read: func(int64, int) ([]family.Microbatch, error) {
		mb := family.Microbatch{Cu: []int32{0, 3, 9, 10}}
		mb.IDs, mb.Targets, mb.Positions = make([]int32, 10), make([]int32, 10), make([]int32, 10)
		mb.Weights = make([]float32, 10)
		return []family.Microbatch{mb}, nil
	}}
	res, err := l.Run(actors.Job{Kind: actors.LoadBatch})
	require.NoError(t, err)
	want := [][2][]int32{{{0, 3, 4, 4}, {0, 3, 4, 4}}, {{0, 0, 4, 4}, {0, 3, 8, 8}}, {{0, 0, 1, 2}, {0, 3,
		9, 10}}}
	for c, o := range res.Out {
		p := o.Payload.(*links.Pack)
		have := map[string][]int32{}
		for i, name := range p.Names {
			if p.Tensors[i].DType == tensor.I32 {
				have[name] = p.Tensors[i].I32()
			}
		}
		require.Equal(t, want[c][0], have["cu_seqlens"], "chunk %d", c)
		require.Equal(t, want[c][1], have["cu_seqlens_k"], "chunk %d", c)
		require.Len(t, have["ids"], 4)
		if c == 2 {
			require.Equal(t, []int32{0, 0, -100, -100}, have["targets"])
		}
	}
}
