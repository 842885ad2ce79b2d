package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
)

// fakeRun trains a small model for four steps whose weights are multiplied as few bits have them.
func fakeRun(t *testing.T, v variant, f kernels.Fake, d tensor.DType) (losses []float64) {
	m := family.Decoder("llama", family.Spec{Layers: 2, Hidden: 64, Inter: 128, Heads: 4, KV: 4, HeadDim: 16,
		Vocab: 32, QKVBias: true,
		Eps: 1e-6, Rope: block.Rope{Dim: 16, Theta: 10000}, InitStd: 0.1})
	if f.Bits > 0 {
		m.Fake = func(string) kernels.Fake { return f }
	}
	l, err := layout.New(&layout.Design{Model: m, Mesh: v.mesh(), Zero: v.zero, Schedule: v.schedule,
		Micro: 4 / v.mesh().Replicas(), Rows: 64, Recompute: v.rc, DType: d, Overlap: v.overlap,
		Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-4, Clip: 1}})
	require.NoError(t, err)
	require.NoError(t, Run(l, RunOptions{Coord: core.RunLayout{First: 1, Last: 4,
		LossScale: core.LossScale{Scale: 1},
		LR:        func(int64) float64 { return 0.002 }},
		Backend: func(int) kernels.Backend { return cpu.New(1) },
		Batches: testBatches(v.mesh().Replicas(), 64),
		Fill: func(kind string, q *grad.Param, g family.Region, dst []float32) (bool, error) {
			if kind != "param" {
				return false, nil
			}
			m.Init(7, q, g, dst)
			return true, nil
		},
		Observe: func(m actors.Message) {
			if m.Text == core.TopicStep {
				losses = append(losses, core.SummaryOf(m.Values).Loss)
			}
		}}))
	return losses
}

// TestFakePlans: weights that are multiplied as few bits have them while they learn (train.qat) have the losses of one
// device under every plan, and others than weights as they are. After a first step whose sums over ranks had another
// order, a weight between two whole numbers may have become the other.
func TestFakePlans(t *testing.T) {
	one := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}
	plain := fakeRun(t, one, kernels.Fake{}, tensor.F32)
	for _, f := range []kernels.Fake{{Bits: 4, Group: 16}, {Bits: 8, Group: 32}, {Bits: 4}} {
		for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
			want := fakeRun(t, one, f, d)
			require.NotEqual(t, plain[0], want[0])
			require.Less(t, want[3], want[0])
			for _, v := range []variant{{pp: 2, dp: 1, tp: 1, schedule: "1f1b"},
				{pp: 1, dp: 2, tp: 1, schedule: "1f1b", zero: 1}, {pp: 1, dp: 2, tp: 1, schedule: "1f1b", zero: 2},
				{pp: 1, dp: 2, tp: 1, schedule: "1f1b", zero: 3, rc: grad.RecomputeFull},
				{pp: 2, dp: 1, tp: 1, schedule: "zb-h1"}, {pp: 1, dp: 1, tp: 2, schedule: "1f1b"},
				{pp: 1, dp: 1, tp: 1, schedule: "1f1b", rc: grad.RecomputeFull}} {
				if v.tp > 1 && f.Group == 0 {
					continue // a rank's rows are parts of rows
				}
				got := fakeRun(t, v, f, d)
				for i := range want {
					bound := map[tensor.DType]float64{tensor.F32: 1e-5, tensor.BF16: 2e-2}[d]
					if i > 0 && v.dp*v.tp > 1 { // sums in another order turn a code here and there
						bound = max(bound, 5e-3)
					}
					require.InDelta(t, want[i], got[i], bound*want[i], "%+v %v %v", v, f, d)
				}
			}
		}
	}
}
