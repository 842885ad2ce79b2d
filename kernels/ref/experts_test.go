package ref

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestLossesOfLogits compares the gradients of the losses that logits of a router have with finite differences: steps
// of 1e-3 of losses around 1 in float32 leave an error of some 1e-4. A loss of even use is what its formula gives.
func TestLossesOfLogits(t *testing.T) {
	const rows, e, k = 12, 5, 2
	r := rand.New(rand.NewPCG(5, 6))
	logits, cu := tensor.Make(tensor.F32, rows, e), tensor.Of(tensor.I32, []int32{1, 1, 6, 10}, 4)
	for i := range logits.F32() {
		logits.F32()[i] = float32(r.NormFloat64())
	}
	seed, loss, grad := tensor.Of(tensor.F32, []float32{1}, 1), tensor.Make(tensor.F32, 1),
		tensor.Make(tensor.F32, rows, e)
	for _, c := range []struct {
		op, back kernels.Op
		attr     kernels.Attr
	}{
		{kernels.ZLoss, kernels.ZLossBwd, kernels.Attr{F: [2]float64{0.7}}},
		{kernels.BalanceEach, kernels.BalanceEachBwd, kernels.Attr{I: [4]int{k, int(routing.Softmax)},
			F: [2]float64{2.5}}},
		{kernels.BalanceEach, kernels.BalanceEachBwd, kernels.Attr{I: [4]int{k, int(routing.Sigmoid)},
			F: [2]float64{2.5}}},
	} {
		at := func() float64 {
			Backend{}.Run(&kernels.Call{Op: c.op, Attr: c.attr, In: []*tensor.Tensor{logits, cu},
				Out: []*tensor.Tensor{loss}})
			return float64(loss.F32()[0])
		}
		Backend{}.Run(&kernels.Call{Op: c.back, Attr: c.attr, In: []*tensor.Tensor{seed, logits, cu},
			Out: []*tensor.Tensor{grad}})
		for i := range logits.F32() {
			x := &logits.F32()[i]
			was := *x
			*x = was + 1e-3
			up := at()
			*x = was - 1e-3
			want := (up - at()) / 2e-3
			*x = was
			require.InDelta(t, want, grad.F32()[i], 3e-4, "%s logit %d of row %d", c.op, i%e, i/e)
		}
	}
	clear(logits.F32()) // all shares are 1/e, and the first k experts get every row: e/k·Σ k·1·(1/e) = 1
	Backend{}.Run(&kernels.Call{Op: kernels.BalanceEach,
		Attr: kernels.Attr{I: [4]int{k}, F: [2]float64{float64(e) / k}}, In: []*tensor.Tensor{logits, cu},
		Out: []*tensor.Tensor{loss}})
	require.InDelta(t, 1, loss.F32()[0], 1e-6)
}

// TestSurplus: rows outside sequences count nothing, and what experts have over the mean adds up to 0.
func TestSurplus(t *testing.T) {
	idx, n := tensor.Of(tensor.I32, []int32{3, 0, 0, 1, 0, 1, 2, 2}, 4, 2), tensor.Make(tensor.F32, 4)
	Backend{}.Run(&kernels.Call{Op: kernels.Surplus,
		In: []*tensor.Tensor{idx, tensor.Of(tensor.I32, []int32{1, 3}, 2)}, Out: []*tensor.Tensor{n}})
	require.Equal(t, []float32{1, 1, -1, -1}, n.F32())
	p := tensor.Of(tensor.F32, []float32{0, 1, 2, 3}, 4)
	Backend{}.Run(&kernels.Call{Op: kernels.SignStep, Attr: kernels.Attr{F: [2]float64{0.5}},
		In: []*tensor.Tensor{n, tensor.Make(tensor.F64, 3)}, Out: []*tensor.Tensor{p}})
	require.Equal(t, []float32{-0.5, 0.5, 2.5, 3.5}, p.F32())
}
