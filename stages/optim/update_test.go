package optim

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// backend keeps the calls that it gets.
type backend struct {
	kernels.Backend
	calls []*kernels.Call
}

func (b *backend) Run(c *kernels.Call) { b.calls = append(b.calls, c) }

// TestHyper: what the kernels get of the configuration, as PyTorch's AdamW and SGD use it.
func TestHyper(t *testing.T) {
	o, err := Get("adamw")
	require.NoError(t, err)
	h := make([]float64, 16)
	c := Config{Beta1: 0.5, Beta2: 0.75, Eps: 1e-7, Decay: 0.3, Momentum: 0.8}
	o.Hyper(c, 0.01, 3, h)
	require.Equal(t, []float64{0.01, 0.5, 0.75, 1e-7, 0.3}, []float64{h[kernels.HyperLR],
		h[kernels.HyperBeta1],
		h[kernels.HyperBeta2], h[kernels.HyperEps], h[kernels.HyperDecay]})
	require.Equal(t, 1-math.Pow(0.5, 3), h[kernels.HyperCorrection1])
	require.Equal(t, 1-math.Pow(0.75, 3), h[kernels.HyperCorrection2])
	require.EqualValues(t, 32, o.Traffic(1))
}

// TestApply: the call of an update has the operands in the kernel's order, and says where decay is left out;
// an optimizer without a kernel of its own gets all of them instead.
func TestApply(t *testing.T) {
	var ts [6]*tensor.Tensor
	for i := range ts {
		ts[i] = tensor.Make(tensor.F32, 2)
	}
	o, err := Get("adamw")
	require.NoError(t, err)
	for _, noDecay := range []bool{false, true} {
		b := &backend{}
		o.Apply(b, ts[0], ts[1], ts[2], ts[3], ts[4:5], ts[5], noDecay)
		require.Len(t, b.calls, 1)
		require.Equal(t, o.Op, b.calls[0].Op)
		require.Equal(t, ts[:3], b.calls[0].In)
		require.Equal(t, ts[3:], b.calls[0].Out)
		require.Equal(t, map[bool]int{true: 1}[noDecay], b.calls[0].Attr.I[0])
	}
	called := 0
	own := Optimizer{Name: "own", Update: func(_ kernels.Backend, grad, hyper, clip, p *tensor.Tensor,
		state []*tensor.Tensor, model *tensor.Tensor, noDecay bool) {
		called++
		require.Equal(t, ts[:4], []*tensor.Tensor{grad, hyper, clip, p})
		require.Equal(t, ts[4:5], state)
		require.True(t, model == ts[5] && noDecay)
	}}
	b := &backend{}
	own.Apply(b, ts[0], ts[1], ts[2], ts[3], ts[4:5], ts[5], true)
	require.Equal(t, 1, called)
	require.Empty(t, b.calls)
}

// TestTwice: two of one name are a bug of the program.
func TestTwice(t *testing.T) {
	require.PanicsWithValue(t, "optim: adamw registered twice",
		func() { Register(Optimizer{Name: "adamw"}) })
	require.PanicsWithValue(t, "optim: schedule wsd registered twice",
		func() { RegisterRate(Rate{Name: "wsd"}) })
	for _, name := range Names() {
		require.Contains(t, source.Offered(source.Optimizers), name)
	}
	require.Equal(t, []string{"constant", "cosine", "inverse-square-root", "linear", "polynomial", "wsd"},
		Rates())
	require.Equal(t, []string{"cosine", "exponential", "linear", "minus_sqrt"}, source.Offered(source.Tails))
}

// TestLRBorders: the first and last step of each part of a schedule, with a warm-up that does not begin at
// zero, without one, and with parts of no length.
func TestLRBorders(t *testing.T) {
	l := LR{Style: "linear", Max: 2, Min: 0.5, WarmupInit: 0.2, Warmup: 4, Decay: 12}
	for step, want := range map[int64]float64{1: 0.2, 2: 0.65, 5: 2, 6: 1.8125, 12: 0.6875, 13: 0.5, 14: 0.5,
		99: 0.5} {
		require.InDelta(t, want, l.At(step), 1e-12, "step %d", step)
	}
	l.Style = "constant"
	require.Equal(t, 2.0, l.At(5), "the warm-up's last step has the whole rate")
	l.Style = "inverse-square-root"
	for step, want := range map[int64]float64{5: 2, 6: 2 * math.Sqrt(4.0/5), 13: 2 * math.Sqrt(4.0/12),
		14: 0.5} {
		require.InDelta(t, want, l.At(step), 1e-12, "step %d", step)
	}
	l.Warmup = 0
	for step, want := range map[int64]float64{1: 2, 2: 2, 3: math.Sqrt2, 9: 2 / math.Sqrt(8)} {
		require.InDelta(t, want, l.At(step), 1e-12, "without a warm-up, step %d", step)
	}
	l.Max = 0.6
	require.Equal(t, 0.5, l.At(10), "never below the least")
	w := LR{Style: "wsd", WSDStyle: "linear", Max: 1, Decay: 8, WSDDecay: 4}
	for step, want := range map[int64]float64{1: 1, 5: 1, 6: 0.75, 8: 0.25, 9: 0, 10: 0} {
		require.InDelta(t, want, w.At(step), 1e-12, "step %d", step)
	}
	w.WSDDecay = 0
	require.Equal(t, 1.0, w.At(9))
	require.Zero(t, w.At(10))
	c := LR{Style: "cosine", Max: 1, Warmup: 3, Decay: 3}
	require.Equal(t, 1.0, c.At(4), "a decay of no length is over after its one step")
	require.Zero(t, c.At(5))
}
