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
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
)

// packedExperts trains additions to attention of a mixture for three steps, on experts in few bits or on
// the numbers of these, and gives the losses and the bytes of parameters of the first rank.
func packedExperts(t *testing.T, plan expertPlan, p kernels.Packing, packed bool) (losses []float64,
	params int64) {
	m := mixture(t, "shared")
	expert := func(name string) bool {
		return strings.Contains(name, ".experts.") && strings.HasSuffix(name, "_proj.weight")
	}
	if packed {
		m.Packed = func(name string, _ int) kernels.Packing {
			if expert(name) {
				return p
			}
			return kernels.Packing{}
		}
	}
	j := plan.job(m)
	j.Lora = &block.Lora{Targets: []string{"*self_attn*_proj"}, Rank: 4, Alpha: 8}
	j.Frozen = func(name string) bool { return !strings.Contains(name, ".lora_") }
	j.Rows, j.Optim = 8, optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1}
	l, err := layout.New(j)
	require.NoError(t, err)
	require.NoError(t, Run(l, RunOptions{Coord: core.RunLayout{First: 1, Last: 3,
		LossScale: core.LossScale{Scale: 1},
		LR:        func(int64) float64 { return 0.01 }}, Backend: func(int) kernels.Backend { return cpu.New(1) },
		Batches: toyBatches(plan.dp),
		Fill: func(kind string, q *grad.Param, g family.Region, dst []float32) (bool, error) {
			if kind != "param" {
				return false, nil
			}
			m.Init(7, q, g, dst)
			if expert(q.Name) && !packed {
				iv := g.Intervals(q)
				k := iv[2][1] - iv[2][0]
				require.Equal(t, q.Shape[2], k)
				for at := 0; at < len(dst); at += k {
					row := dst[at : at+k]
					_, words := p.Words(k)
					raw := make([]byte, 4*words)
					p.Pack(raw, row)
					p.Decode(row, raw, k, 0)
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

// TestPackedExperts: with experts in few bits a run has, to the bit, the losses of one whose experts have
// the same numbers, under plans that share experts out, and holds less.
func TestPackedExperts(t *testing.T) {
	t.Parallel()
	one := expertPlan{1, 1, 1, 1, 1, 0, 0, "1f1b", 1, none, ""}
	for form := 1; form < len(kernels.PackedForms); form++ {
		p := kernels.Packing{Form: form, Group: 8}
		want, whole := packedExperts(t, one, p, false)
		got, few := packedExperts(t, one, p, true)
		require.Equal(t, want, got, "%v", p)
		require.NotEqual(t, got[0], got[2])
		require.LessOrEqual(t, few, whole, "%v", p)
	}
	p := kernels.Packing{Form: 1, Group: 16}
	first, _ := packedExperts(t, one, p, true)
	for _, plan := range []expertPlan{{1, 2, 1, 2, 1, 0, 0, "1f1b", 1, some, ""},
		{1, 4, 1, 2, 1, 1, 0, "1f1b", 1, full, "overlap"}, {1, 2, 2, 4, 1, 0, 0, "1f1b", 1, some, ""},
		{2, 2, 1, 2, 1, 0, 0, "zb-h1", 1, none, ""}, {1, 4, 1, 2, 1, 3, 0, "1f1b", 1, some, ""}} {
		t.Run(fmt.Sprintf("%+v", plan), func(t *testing.T) {
			want, _ := packedExperts(t, plan, p, false)
			got, _ := packedExperts(t, plan, p, true)
			require.Equal(t, want, got)
			require.InEpsilonSlice(t, first, got, 1e-5)
		})
	}
}
