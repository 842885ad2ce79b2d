package host

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	routers "github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/topology"
)

// TestDelayedPlans: scales follow from the greatest numbers of all ranks and microbatches of the steps before,
// so that every plan has those of one rank and its losses; where it changes no sum, with the same bits.
func TestDelayedPlans(t *testing.T) {
	const steps = 5
	of := func(v variant) *watched {
		return (&watched{spec: lowSpec(), precision: "delayed", history: steps, steps: steps}).run(t, v,
			v.mesh())
	}
	want := of(variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"})
	require.Len(t, want.choices, 14)
	now := (&watched{spec: lowSpec(), precision: "tensor", steps: 5}).run(t, variant{pp: 1, dp: 1, tp: 1,
		schedule: "1f1b"},
		variant{pp: 1, dp: 1, tp: 1}.mesh())
	require.NotEqual(t, now.losses[0], want.losses[0],
		"nothing is known before the first step, whose scales are 1")
	for _, v := range []variant{{pp: 2, dp: 1, tp: 1}, {pp: 2, dp: 1, tp: 1, rc: grad.RecomputeFull},
		{pp: 2, dp: 1, tp: 1, schedule: "zb-h1"}, {pp: 1, dp: 2, tp: 1}, {pp: 1, dp: 2, tp: 1, zero: 1},
		{pp: 1, dp: 2, tp: 1, zero: 2}, {pp: 1, dp: 4, tp: 1, zero: 3}, {pp: 1, dp: 1, tp: 2},
		{pp: 1, dp: 1, tp: 2, sp: true}, {pp: 2, dp: 1, tp: 2}, {pp: 1, dp: 2, tp: 2, zero: 3}, {pp: 2,
			dp: 2, tp: 1, zero: 2},
		{pp: 1, dp: 1, tp: 1, cp: 2}} {
		if v.schedule == "" {
			v.schedule = "1f1b"
		}
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			got := of(v)
			if v.mesh().Size() == v.pp {
				require.Equal(t, want.losses, got.losses)
				require.Equal(t, want.choices, got.choices)
				return
			}
			require.InEpsilonSlice(t, want.losses, got.losses, 5e-3)
			for name, c := range want.choices {
				other := got.choices[name]
				require.Len(t, other, kernels.DelayedLen(steps))
				for i := range c {
					// numbers of the first step are of the same weights, and those of the next of products
					// whose sums have other orders: gradients without a scale keep two bits, and few of them
					near := 0.3
					if i == kernels.DelayedAt || i == kernels.DelayedAt+steps {
						near = 1e-5
					}
					require.InDelta(t, c[i], other[i], near*float64(c[i])+1e-9, "%s: number %d", name, i)
				}
			}
		})
	}
}

// TestDelayedScales: a number that is planted in one step is what the scales of as many steps behind it as
// the history has follow from, and no longer.
func TestDelayedScales(t *testing.T) {
	const norm, of = "model.layers.0.input_layernorm.weight", "model.layers.0.self_attn.q_proj.weight.scales"
	w := watched{spec: lowSpec(), precision: "delayed_e4m3", history: 3, steps: 8}
	var most []float32
	w.before = func(step int64, params map[string]*tensor.Tensor) {
		switch step {
		case 3:
			params[norm].F32()[5] *= 1e3
		case 4:
			params[norm].F32()[5] /= 1e3
		}
		most = append(most, params[of].F32()[kernels.DelayedMost])
	}
	w.run(t, variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}, variant{pp: 1, dp: 1, tp: 1}.mesh())
	require.Zero(t, most[0])
	for step, m := range most[1:] {
		if at := step + 2; at >= 4 && at < 7 { // behind the step, and two more
			require.Greater(t, m, 100*most[1], "step %d", at)
		} else {
			require.InEpsilon(t, most[1], m, 0.5, "step %d", at)
		}
	}
}

// TestDelayedExperts: products of experts keep the magnitudes of all rows and all experts of a weight
// together, also where experts are shared out over replicas.
func TestDelayedExperts(t *testing.T) {
	s := lowSpec()
	s.MLPs = []string{"experts", "experts"}
	s.Experts = block.Experts{Inter: 64, Experts: 4, Each: 2, Router: routers.Router{Normalize: true}}
	of := func(v variant, mesh topology.Mesh) *watched {
		return (&watched{spec: s, precision: "delayed", history: 2, steps: 5}).run(t, v, mesh)
	}
	one := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}
	want := of(one, one.mesh())
	require.Len(t, want.choices, 14)
	v := variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b", rc: grad.RecomputeFull}
	got := of(v, v.mesh())
	require.Equal(t, want.losses, got.losses)
	require.Equal(t, want.choices, got.choices)
	for _, zero := range []int{0, 1, 3} {
		got = of(variant{zero: zero, schedule: "1f1b"}, layout.MeshOf(&configs.Plan{PP: 1, DP: 2, TP: 1,
			CP: 1, EP: 2, ETP: 1}))
		require.InEpsilonSlice(t, want.losses, got.losses, 5e-3)
		for name, c := range want.choices {
			require.InEpsilon(t, c[kernels.DelayedMost], got.choices[name][kernels.DelayedMost], 0.05, name)
		}
	}
}
