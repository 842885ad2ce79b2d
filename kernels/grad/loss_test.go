package grad_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// lossNodes records a loss over t tokens and a vocabulary of v, and gives its forward and backward node.
func lossNodes(o grad.Options, t, d, v int) (lse, bwd *grad.Node) {
	tape := grad.NewTape(o)
	tape.Part(0, func() {
		x := tape.Param("x", []int{t, d}, -1, 0, false) // a parameter stands for an activation
		w := tape.Param("w", []int{v, d}, 0, 1, false)
		tape.Loss(tape.LinearCrossEntropy(x, w, tape.Data("targets", tensor.I32, t), tape.Data("weights", tensor.F32, t)))
	})
	tr := tape.Finish()
	for _, segs := range [][]grad.Segment{tr.F, tr.B} {
		for _, s := range segs {
			for _, n := range s.Ops {
				switch n.Op.Kernel {
				case kernels.LinearLSE:
					lse = n
				case kernels.LinearCEBwd, kernels.LinearCEDX, kernels.LinearCEDW:
					bwd = n
				}
			}
		}
	}
	return lse, bwd
}

// The loss keeps the exponentials of its logits for the backward, but not unless asked to, where a policy saves memory, where they are too many,
// or where there is no backward.
func TestLossKeepsExponentials(t *testing.T) {
	tp := []grad.MeshAxis{{Name: "tp", Size: 2}}
	for _, c := range []struct {
		name      string
		o         grad.Options
		t, v      int
		kept, top int // columns
	}{
		{"not asked for", grad.Options{}, 4, 5000, 0, 0},
		{"none", grad.Options{KeepLogits: true}, 4, 5000, 5000, 3},
		{"two ranks", grad.Options{KeepLogits: true, Mesh: tp}, 4, 10000, 10000, 6},
		{"selective", grad.Options{KeepLogits: true, Recompute: grad.RecomputeSelective}, 4, 5000, 0, 0},
		{"full", grad.Options{KeepLogits: true, Recompute: grad.RecomputeFull}, 4, 5000, 0, 0},
		{"too many", grad.Options{KeepLogits: true}, 1 << 14, 1<<14 + 1, 0, 0},
		{"as many as may be", grad.Options{KeepLogits: true}, 1 << 14, 1 << 14, 1 << 14, 8},
		{"half of too many for each rank", grad.Options{KeepLogits: true, Mesh: tp}, 1 << 14, 1 << 15, 1 << 15, 16},
		{"no backward", grad.Options{KeepLogits: true, NoGrad: true}, 4, 5000, 0, 0},
	} {
		lse, bwd := lossNodes(c.o, c.t, 8, c.v)
		require.NotNil(t, lse, c.name)
		if c.kept == 0 {
			require.Len(t, lse.Out, 2, c.name)
			require.True(t, bwd == nil || len(bwd.In) == 6, c.name)
			continue
		}
		require.Len(t, lse.Out, 4, c.name)
		require.Equal(t, []int{c.t, c.kept}, lse.Out[2].Shape, c.name)
		require.Equal(t, []int{c.t, c.top}, lse.Out[3].Shape, c.name)
		require.Equal(t, lse.Out[2:], bwd.In[6:], c.name)
	}
}
