package host

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/stages/family"
)

// TestPaddedVocabulary trains with vocabularies that tensor parallelism does not divide to the losses of one rank:
// of 33 rows the last of four ranks has 6 and 3 of padding, of 9 it has only padding. Bounds as in TestGrid.
func TestPaddedVocabulary(t *testing.T) {
	t.Parallel()
	for _, vocab := range []int{33, 9} {
		for _, tie := range []bool{false, true} {
			s := tiny(tie).Spec
			s.Vocab = vocab
			m := family.Decoder("llama", s)
			train := func(v variant, backend func(int) kernels.Backend) (losses []float64) {
				l, o := v.run(t, m, 6, backend, &losses)
				deal := o.Batches
				o.Batches = func(step int64, d int) ([]family.Microbatch, error) {
					mbs, err := deal(step, d)
					for _, mb := range mbs {
						for i := range mb.IDs {
							// the last row is a target
							mb.IDs[i], mb.Targets[i] = mb.IDs[i]%int32(vocab),
								int32(vocab)-1-mb.Targets[i]%int32(vocab)
						}
					}
					return mbs, err
				}
				require.NoError(t, Run(l, o))
				return
			}
			want := train(variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}, refBackend)
			require.Len(t, want, 6)
			for i, v := range []variant{{pp: 1, dp: 1, tp: 4, sp: true}, {pp: 2, dp: 1, tp: 4},
				{pp: 1, dp: 2, tp: 4, zero: 1}, {pp: 1, dp: 2, tp: 4, zero: 2},
				{pp: 2, dp: 2, tp: 2, zero: 3}} {
				v.schedule = "1f1b"
				for _, native := range sampled(t, []bool{false, true}, 2, i+vocab%2) {
					t.Run(fmt.Sprintf("%d tie=%v %v cpu=%v", vocab, tie, v, native), func(t *testing.T) {
						backend := refBackend
						if native {
							backend = func(int) kernels.Backend {
								b := cpu.New(1)
								t.Cleanup(func() { _ = b.Close() })
								return b
							}
						}
						got := train(v, backend)
						require.Len(t, got, 6)
						for i := range want {
							require.InEpsilon(t, want[i], got[i], 1e-5, "step %d: %v, want %v", i+1,
								got, want)
						}
					})
				}
			}
		}
	}
}
