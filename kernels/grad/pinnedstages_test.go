package grad_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lfactor/lfactor/kernels/grad"
)

// TestPinnedStages is TestPinnedTraces of whole decoders: packed sequences, chunks, windows, masks and sinks
// over every way to share out tokens and parameters, and every policy of what is computed again.
func TestPinnedStages(t *testing.T) {
	var b strings.Builder
	for i, mesh := range append(contextMeshes(), nil, []grad.MeshAxis{{Name: "tp", Size: 2}}) {
		for k, o := range []grad.Options{
			{}, {Recompute: grad.RecomputeFull, Overlap: true, KeepLogits: true},
			{ShardGrads: true, RecomputePerPhase: true, Recompute: grad.RecomputeSelective, Chunks: 2},
			{ShardGrads: true, ShardParams: true, Overlap: true, SumWhole: 64},
		} {
			c := small
			c.tokens, c.one, c.mask, c.sinks = 24, (i+k)%2 == 0, (i+k)%3 == 0, (i+k)%5 < 2
			if (i+k)%4 == 1 {
				c.window = 7
			}
			o.Mesh = mesh
			fmt.Fprintf(&b, "stages %d, policy %d: %s\n", i, k, described(func() *grad.Trace {
				if o.Chunks > 1 {
					c.one = true
				}
				return c.stage(o, 0, 2)
			}))
		}
	}
	grad.Pinned(t, "testdata/stages.txt", b.String())
}

func described(record func() *grad.Trace) (text string) {
	defer func() {
		if why := recover(); why != nil {
			text = fmt.Sprint("refused: ", why)
		}
	}()
	return grad.Summary(record())
}
