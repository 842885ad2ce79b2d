package host

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	routers "github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// optimized trains four steps of a small Llama under a plan with an optimizer, and gives what its state takes.
func optimized(t *testing.T, v variant, o optim.Config, away float64) (losses []float64, state int64) {
	t.Helper()
	return optimizedOf(t, lowSpec(), v, v.mesh(), o, away)
}

func optimizedOf(t *testing.T, s family.Spec, v variant, mesh topology.Mesh, o optim.Config, away float64) (losses []float64,
	state int64) {
	t.Helper()
	o.Beta1, o.Beta2, o.Eps, o.Clip = 0.9, 0.95, 1e-8, 1
	l, err := layout.New(&layout.Design{Model: family.Decoder("llama", s), Mesh: mesh, Zero: v.zero,
		Schedule: "1f1b",
		Micro:    4 / mesh.Replicas(), Rows: 64, DType: tensor.F32, OffloadState: away, Optim: o})
	require.NoError(t, err)
	for r := range l.World() {
		state += l.Memory(r).State + l.Memory(r).Away
	}
	require.NoError(t, Run(l, RunOptions{Coord: core.RunLayout{First: 1, Last: 4,
		LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 { return 0.01 }},
		Backend: func(int) kernels.Backend { return cpu.New(1) },
		Batches: testBatches(mesh.Replicas(), 64),
		Fill:    seeded(l.Design, 7),
		Observe: func(m actors.Message) {
			if m.Text == core.TopicStep {
				losses = append(losses, core.SummaryOf(m.Values).Loss)
			}
		}}))
	return losses, state
}

// TestEightBitMoments: moments in eight bits have the same bits in every plan that changes no sum, offloaded or not,
// for blocks lie in rows and plans cut no block; a plan that would is refused. Schedule-free AdamW likewise.
func TestEightBitMoments(t *testing.T) {
	one := variant{pp: 1, dp: 1, tp: 1}
	for _, o := range []optim.Config{{Name: "adamw", Moments: optim.EightBit, Block: 32},
		{Name: "schedule_free"}} {
		_, wide := optimized(t, one, optim.Config{Name: "adamw"}, 0)
		want, all := optimized(t, one, o, 0)
		if o.Block > 0 {
			require.Less(t, float64(all), 0.55*float64(wide))
		}
		for _, v := range []variant{{pp: 2, dp: 1, tp: 1}, {pp: 1, dp: 2, tp: 1, zero: 1}, {pp: 1, dp: 2,
			tp: 1, zero: 2},
			{pp: 1, dp: 2, tp: 1, zero: 3}, {pp: 1, dp: 1, tp: 2}, {pp: 2, dp: 2, tp: 1, zero: 1}} {
			for _, away := range []float64{0, 1} {
				got, state := optimized(t, v, o, away)
				if v.pp*v.dp > 1 && v.dp == 1 {
					require.Equal(t, want, got, "%s %v", o.Name, v)
				}
				require.InEpsilonSlice(t, want, got, 1e-3, fmt.Sprint(o.Name, v))
				if v.zero > 0 {
					require.InEpsilon(t, float64(all), state, 0.1, fmt.Sprint(v))
				}
			}
		}
	}
	_, err := layout.New(&layout.Design{Model: family.Decoder("llama", lowSpec()), Mesh: variant{pp: 1,
		dp: 1, tp: 2}.mesh(),
		Schedule: "1f1b", Micro: 4, Rows: 64, Optim: optim.Config{Name: "adamw", Moments: optim.EightBit,
			Block: 256}})
	require.ErrorContains(t, err, "optimizer.moments_block: ")
	require.ErrorContains(t, err, "set it to ")
}

// TestNarrowMoments: moments in bf16 take half the memory in every plan, offloaded or not, and give the losses of one
// rank; the same bits where a plan changes no sum, since what rounds by chance is counted from places in whole tensors.
func TestNarrowMoments(t *testing.T) {
	run := func(v variant, narrow bool, away float64) (losses []float64, state int64) {
		return optimized(t, v, optim.Config{Name: "adamw",
			Moments: map[bool]string{true: optim.Half}[narrow]}, away)
	}
	one := variant{pp: 1, dp: 1, tp: 1}
	wide, all := run(one, false, 0)
	want, half := run(one, true, 0)
	require.InEpsilon(t, float64(all)/2, half, 0.05)
	require.Equal(t, wide[:2], want[:2], "the first update is of moments as they are computed")
	require.NotEqual(t, wide[3], want[3])
	require.InEpsilonSlice(t, wide, want, 0.01)
	for _, v := range []variant{{pp: 2, dp: 1, tp: 1}, {pp: 1, dp: 2, tp: 1, zero: 1}, {pp: 1, dp: 2, tp: 1,
		zero: 3},
		{pp: 1, dp: 1, tp: 2}} {
		for _, away := range []float64{0, 1} {
			got, state := run(v, true, away)
			if v.pp > 1 {
				require.Equal(t, want, got, "%v", v)
			}
			require.InEpsilonSlice(t, want, got, 1e-6, fmt.Sprint(v))
			if v.zero > 0 {
				require.InEpsilon(t, float64(half), state, 0.1, fmt.Sprint(v))
			}
		}
	}
}

// TestNarrowExperts: moments of experts in bf16 are rounded by the experts' own places, on whichever rank they lie: the
// losses of one rank, up to the order of sums.
func TestNarrowExperts(t *testing.T) {
	s := lowSpec()
	s.MLPs = []string{"experts", "experts"}
	s.Experts = block.Experts{Inter: 64, Experts: 4, Each: 2, Router: routers.Router{Normalize: true}}
	o := optim.Config{Name: "adamw", Moments: optim.Half}
	one := variant{pp: 1, dp: 1, tp: 1}
	want, _ := optimizedOf(t, s, one, one.mesh(), o, 0)
	two := variant{pp: 2, dp: 1, tp: 1}
	got, _ := optimizedOf(t, s, two, two.mesh(), o, 1)
	require.Equal(t, want, got)
	shared, _ := optimizedOf(t, s, variant{zero: 1}, layout.MeshOf(&configs.Plan{PP: 1, DP: 2, TP: 1, CP: 1, EP: 2, ETP: 1}), o, 0)
	t.Log(want, shared)
	require.InEpsilonSlice(t, want, shared, 1e-5)
}
