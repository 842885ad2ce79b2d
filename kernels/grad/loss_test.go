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
		tape.Loss(tape.LinearCrossEntropy(x, w, tape.Data("targets", tensor.I32, t),
			tape.Data("weights", tensor.F32, t), 0))
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

// The loss keeps the exponentials of its logits for the backward, but not unless asked to, where a policy
// saves memory, where they are too many, or where there is no backward.
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
		{"selective", grad.Options{KeepLogits: true, Recompute: grad.RecomputeSelective}, 4, 5000, 5000, 3},
		{"two ranks, which cannot wait", grad.Options{KeepLogits: true, LossInB: true, Mesh: tp}, 4, 10000,
			10000, 6},
		{"full", grad.Options{KeepLogits: true, Recompute: grad.RecomputeFull}, 4, 5000, 0, 0},
		{"too many", grad.Options{KeepLogits: true}, 1 << 14, 1<<14 + 1, 0, 0},
		{"as many as may be", grad.Options{KeepLogits: true}, 1 << 14, 1 << 14, 1 << 14, 8},
		{"half of too many for each rank", grad.Options{KeepLogits: true, Mesh: tp}, 1 << 14, 1 << 15,
			1 << 15, 16},
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

// Where forward and backward are one piece each, the loss is computed with its gradients: the forward has no
// part of it and nothing is kept. What is made of several losses waits with them; a loss that another node
// or a port needs does not wait, nor does one without both gradients.
func TestLossWaits(t *testing.T) {
	all := []string{"linear_lse", "lse_join", "nll"}
	record := func(o grad.Options,
		f func(tape *grad.Tape, loss func(name string) *grad.Value)) (forward, backward []string) {
		tape := grad.NewTape(o)
		tape.Part(0, func() {
			f(tape, func(name string) *grad.Value {
				x := tape.Param("x "+name, []int{4, 8}, -1, 0, false)
				return tape.LinearCrossEntropy(x, tape.Param("w", []int{5000, 8}, 0, 1, false),
					tape.Data("targets", tensor.I32, 4), tape.Data("weights", tensor.F32, 4), 0)
			})
		})
		tr := tape.Finish()
		names := func(segs []grad.Segment) (l []string) {
			for _, s := range segs {
				for _, n := range s.Ops {
					if n.Op.Kernel != "" && n.Op.Kernel != kernels.AddTo {
						l = append(l, n.Op.Name)
					}
				}
			}
			return
		}
		return names(tr.F), names(tr.B)
	}
	one := func(tape *grad.Tape, loss func(string) *grad.Value) { tape.Loss(loss("a")) }
	for _, c := range []struct {
		name              string
		o                 grad.Options
		record            func(*grad.Tape, func(string) *grad.Value)
		forward, backward []string
	}{
		{"waits", grad.Options{LossInB: true}, one, nil, []string{"linear_ce"}},
		{"split", grad.Options{}, one, all, []string{"linear_ce_bwd"}},
		{"frozen weights", grad.Options{LossInB: true, Frozen: func(p string) bool { return p == "w" }}, one,
			all, []string{"linear_ce_dx"}},
		{"no backward", grad.Options{LossInB: true, NoGrad: true}, one, all, nil},
		{"two", grad.Options{LossInB: true}, func(tape *grad.Tape, loss func(string) *grad.Value) {
			tape.Loss(loss("a"))
			tape.Loss(tape.Scale(loss("b"), 0.3))
		}, nil, []string{"scale", "linear_ce", "linear_ce", "scale", "sum"}},
		{"needed elsewhere", grad.Options{LossInB: true},
			func(tape *grad.Tape, loss func(string) *grad.Value) {
				l := loss("a")
				tape.Loss(l)
				tape.Output("port", l)
			}, all, []string{"sum", "linear_ce_bwd"}},
	} {
		forward, backward := record(c.o, c.record)
		require.Equal(t, c.forward, forward, c.name)
		require.Equal(t, c.backward, backward, c.name)
	}
}
