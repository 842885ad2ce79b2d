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
		{"one rank, whose loss waits", grad.Options{KeepLogits: true}, 4, 5000, 0, 0},
		{"a backward in two", grad.Options{KeepLogits: true, Split: true}, 4, 5000, 5000, 3},
		{"two ranks", grad.Options{KeepLogits: true, Mesh: tp}, 4, 10000, 10000, 6},
		{"selective", grad.Options{KeepLogits: true, Mesh: tp, Recompute: grad.RecomputeSelective}, 4, 10000,
			10000, 6},
		{"full", grad.Options{KeepLogits: true, Mesh: tp, Recompute: grad.RecomputeFull}, 4, 10000, 0, 0},
		{"too many", grad.Options{KeepLogits: true, Mesh: tp}, 1 << 14, 1<<15 + 2, 0, 0},
		{"as many as may be", grad.Options{KeepLogits: true, Mesh: tp}, 1 << 14, 1 << 15, 1 << 15, 16},
		{"no backward", grad.Options{KeepLogits: true, Mesh: tp, NoGrad: true}, 4, 10000, 0, 0},
	} {
		lse, bwd := lossNodes(c.o, c.t, 8, c.v)
		if c.o.Mesh == nil && !c.o.NoGrad &&
			c.kept == 0 { // the loss waits for the backward, and keeps nothing
			require.Nil(t, lse, c.name)
			continue
		}
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

// The loss is computed with its gradients: the forward has no part of it and nothing is kept. Where a backward comes
// in two, its first half has all of it, so that the logits are computed once there too. What is made of several losses
// waits with them; a loss that another node or a port needs does not wait, nor does one without both gradients.
func TestLossWaits(t *testing.T) {
	all := []string{"linear_lse", "lse_join", "nll"}
	record := func(o grad.Options,
		f func(tape *grad.Tape, loss func(name string) *grad.Value)) (forward, backward, input,
		weight []string) {
		o.InputGrad = func(string) bool { return true }
		tape := grad.NewTape(o)
		tape.Part(0, func() {
			f(tape, func(name string) *grad.Value {
				x := tape.Input("x "+name, tensor.F32, 4, 8)
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
		return names(tr.F), names(tr.B), names(tr.I), names(tr.W)
	}
	one := func(tape *grad.Tape, loss func(string) *grad.Value) { tape.Loss(loss("a")) }
	for _, c := range []struct {
		name              string
		o                 grad.Options
		record            func(*grad.Tape, func(string) *grad.Value)
		forward, backward []string
	}{
		{"waits", grad.Options{}, one, nil, []string{"linear_ce"}},
		{"frozen weights", grad.Options{Frozen: func(p string) bool { return p == "w" }}, one,
			all, []string{"linear_ce_dx"}},
		{"no backward", grad.Options{NoGrad: true}, one, all, nil},
		{"two", grad.Options{}, func(tape *grad.Tape, loss func(string) *grad.Value) {
			tape.Loss(loss("a"))
			tape.Loss(tape.Scale(loss("b"), 0.3))
		}, nil, []string{"scale", "linear_ce", "linear_ce", "scale", "sum"}},
		{"needed elsewhere", grad.Options{},
			func(tape *grad.Tape, loss func(string) *grad.Value) {
				l := loss("a")
				tape.Loss(l)
				tape.Output("port", l)
			}, all, []string{"sum", "linear_ce_bwd"}},
	} {
		forward, backward, input, weight := record(c.o, c.record)
		require.Equal(t, c.forward, forward, c.name)
		require.Equal(t, c.backward, backward, c.name)
		require.Equal(t, c.backward, input, c.name)
		require.Empty(t, weight, c.name)
	}
}
