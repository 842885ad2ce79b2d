package host

import (
	"fmt"
	"strings"
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

// packedRun trains additions of a small model for four steps, on weights in few bits, or on the numbers of these.
func packedRun(t *testing.T, v variant, p kernels.Packing, packed bool, d tensor.DType) (losses []float64,
	params int64) {
	m := family.Decoder("llama", family.Spec{Layers: 2, Hidden: 64, Inter: 160, Heads: 4, KV: 4, HeadDim: 16,
		Vocab: 32, QKVBias: true,
		Eps: 1e-6, Rope: block.Rope{Dim: 16, Theta: 10000}, InitStd: 0.1})
	if packed {
		m.Packed = func(string, int) kernels.Packing { return p }
	}
	l, err := layout.New(&layout.Design{Model: m, Mesh: v.mesh(), Zero: v.zero, Schedule: v.schedule,
		Lora:   &block.Lora{Targets: []string{"*_proj"}, Rank: 4, Alpha: 8},
		Frozen: func(name string) bool { return !strings.Contains(name, ".lora_") },
		Micro:  4 / v.mesh().Replicas(), Rows: 64, Recompute: v.rc, DType: d, Overlap: v.overlap,
		Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1}})
	require.NoError(t, err)
	require.NoError(t, Run(l, RunOptions{Coord: core.RunLayout{First: 1, Last: 4,
		LossScale: core.LossScale{Scale: 1},
		LR:        func(int64) float64 { return 0.01 }},
		Backend: func(int) kernels.Backend { return cpu.New(1) },
		Batches: testBatches(v.mesh().Replicas(), 64),
		Fill: func(kind string, q *grad.Param, g family.Region, dst []float32) (bool, error) {
			if kind != "param" {
				return false, nil
			}
			m.Init(7, q, g, dst)
			if linear := strings.HasSuffix(q.Name, "_proj.weight"); linear && !packed {
				for at := 0; at < len(dst); at += q.Shape[1] {
					row := dst[at : at+q.Shape[1]]
					_, words := p.Words(len(row))
					raw := make([]byte, 4*words)
					p.Pack(raw, row)
					p.Decode(row, raw, len(row), 0)
				}
			}
			return true, nil
		},
		Observe: func(m actors.Message) {
			if m.Text == core.TopicStep {
				losses = append(losses, core.SummaryOf(m.Values).Loss)
			}
		}}))
	return losses, l.Memory(0).Params
}

// TestPackedPlans: a run whose base lies in few bits has, to the bit, the losses of one whose base has
// the same numbers, under every plan that leaves matrices whole; and it holds less.
func TestPackedPlans(t *testing.T) {
	one := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}
	seen := map[float64]string{}
	for form := 1; form < len(kernels.PackedForms); form++ {
		for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
			p := kernels.Packing{Form: form, Group: kernels.PackedForms[form].Group}
			plain, whole := packedRun(t, one, p, false, d)
			got, few := packedRun(t, one, p, true, d)
			require.Equal(t, plain, got, "%v %v", p, d)
			require.Less(t, few, whole, "%v %v", p, d)
			require.Empty(t, seen[got[3]], "%v is %s", p, seen[got[3]])
			seen[got[3]] = fmt.Sprint(p, d)
		}
	}
	p := kernels.Packing{Form: 1, Group: 64}
	for _, v := range []variant{{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}, {pp: 1, dp: 1, tp: 1,
		schedule: "1f1b",
		rc:       grad.RecomputeFull}, {pp: 2, dp: 1, tp: 1, schedule: "zb-h1"}, {pp: 1, dp: 2, tp: 1,
		schedule: "1f1b",
		zero:     2}, {pp: 1, dp: 2, tp: 1, schedule: "1f1b", zero: 1, rc: grad.RecomputeSelective,
		overlap: true}} {
		plain, _ := packedRun(t, v, p, false, tensor.F32)
		got, _ := packedRun(t, v, p, true, tensor.F32)
		require.Equal(t, plain, got, "%v", v)
	}
	for _, v := range []variant{{pp: 1, dp: 1, tp: 2, schedule: "1f1b"}, {pp: 2, dp: 1, tp: 2, schedule: "1f1b",
		rc: grad.RecomputeFull}, {pp: 1, dp: 1, tp: 4, schedule: "1f1b", sp: true},
		{pp: 1, dp: 2, tp: 1, schedule: "1f1b", zero: 3}, {pp: 1, dp: 2, tp: 2, schedule: "1f1b", zero: 3}} {
		for _, q := range []kernels.Packing{p, {Form: 3, Group: 32}} {
			want, all := packedRun(t, one, q, true, tensor.F32)
			got, share := packedRun(t, v, q, true, tensor.F32)
			require.InDeltaSlice(t, want, got, 1e-5, "%v", v)
			require.Less(t, float64(share), 0.7*float64(all), "%v", v)
		}
	}
}
