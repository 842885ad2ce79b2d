package host

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// hybrid is a model of three layers of linear attention around one of full attention.
func hybrid(t *testing.T) *family.Model {
	s := family.Spec{Layers: 4, Hidden: 16, Inter: 24, Heads: 4, KV: 2, HeadDim: 4, Vocab: 32, Eps: 1e-5,
		QKNorm: true, Rope: block.Rope{Dim: 4, Theta: 10000, Max: 64, Original: 64, Length: 48}, InitStd: 0.1,
		Mixers: []string{"linear_attention", "linear_attention", "full_attention", "linear_attention"},
		Delta:  block.Delta{Hidden: 16, Keys: 2, Values: 4, KeyDim: 6, ValueDim: 5, Taps: 4, Eps: 1e-5}}
	require.NoError(t, s.Check())
	return family.Decoder("toy", s)
}

// TestStatesInChunks trains a hybrid whose sequences are cut into chunks, whole and packed, with tensor
// parallelism, pipelines, ZeRO, recompute and tokens shared out over ranks, to the losses and norms of one
// device: within 1e-5 and 1e-4, since sums of float32 have another order.
func TestStatesInChunks(t *testing.T) {
	for _, packed := range []bool{false, true} {
		want, norms := contextPlan{pp: 1, dp: 1, tp: 1, cp: 1, packed: packed,
			schedule: "1f1b"}.train(t, hybrid(t), contextRows, 3)
		for _, v := range []contextPlan{
			{pp: 1, dp: 1, tp: 1, cp: 1, chunks: 2}, {pp: 1, dp: 1, tp: 1, cp: 1, chunks: 4,
				rc: grad.RecomputeFull},
			{pp: 2, dp: 1, tp: 1, cp: 1, chunks: 3, rc: grad.RecomputeSelective},
			{pp: 1, dp: 2, tp: 2, cp: 1, chunks: 6, zero: 1}, {pp: 2, dp: 1, tp: 2, cp: 1, chunks: 3,
				sp: true, zero: 1},
			{pp: 1, dp: 1, tp: 1, cp: 2, u: 1, chunks: 2, rc: grad.RecomputeFull},
			{pp: 1, dp: 2, tp: 1, cp: 2, u: 2, chunks: 3, zero: 3},
		} {
			v.packed, v.schedule, v.u = packed, "chunkpipe", max(1, v.u)
			t.Run(fmt.Sprint(v), func(t *testing.T) {
				got, gn := v.train(t, hybrid(t), contextRows, 3)
				for i := range want {
					require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 1e-5, "%v, want %v", got, want)
					require.LessOrEqual(t, math.Abs(gn[i]-norms[i])/norms[i], 1e-4, "%v, want %v", gn, norms)
				}
			})
		}
	}
}
