package host

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
)

// parts makes a Component of what encoder, projector and decoder have.
func parts(encoder, projector, decoder fit.ComponentPlan) func(string) fit.ComponentPlan {
	return func(name string) fit.ComponentPlan {
		return map[string]fit.ComponentPlan{family.Encoder: encoder, family.Projector: projector,
			family.Foundation: decoder}[name]
	}
}

// TestPartsRecompute: what a part computes again changes no bit of any loss, and only where the part lies is
// there less to keep.
func TestPartsRecompute(t *testing.T) {
	t.Parallel()
	m := visionModel(t, "qwen3-vl")
	none, full := fit.ComponentPlan{DType: tensor.F32},
		fit.ComponentPlan{DType: tensor.F32, Recompute: grad.RecomputeFull}
	selective := fit.ComponentPlan{DType: tensor.F32, Recompute: grad.RecomputeSelective}
	layouts := []visionPlan{
		{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}, // one stage has all parts
		{pp: 2, dp: 1, tp: 2, schedule: "1f1b", e: &layout.PartPlan{TP: 1, Over: layout.OverAll,
			Fill: true}},
		{pp: 2, dp: 1, tp: 1, schedule: "zb-h1", e: &layout.PartPlan{TP: 1, Over: layout.OverOwn, Ranks: 1,
			Fill: true}},
	}
	for _, v := range layouts {
		want := v.train(t, v.job(m), 3, nil)
		memory := func(c func(string) fit.ComponentPlan) (out []int64) {
			j := v.job(m)
			j.Component = c
			l, err := layout.New(j)
			require.NoError(t, err)
			for r := range l.Ranks {
				out = append(out, l.Memory(r).Activations)
			}
			return
		}
		plain := memory(nil)
		for i, c := range []func(string) fit.ComponentPlan{parts(full, none, none),
			parts(none, full, none), parts(none, none, full), parts(selective, none, full),
			parts(full, full, full)} {
			t.Run(fmt.Sprintf("%v %d", v, i), func(t *testing.T) {
				j := v.job(m)
				j.Component = c
				require.Equal(t, want, v.train(t, j, 3, nil))
			})
		}
		encoder, decoder := memory(parts(full, none, none)), memory(parts(none, none, full))
		for r := range plain {
			switch {
			case v.e == nil:
				require.Less(t, encoder[r], plain[r])
				require.Less(t, decoder[r], plain[r])
			case v.e.Over == layout.OverOwn && r == len(plain)-1: // the encoder's own
				require.Less(t, encoder[r], plain[r])
				require.InEpsilon(t, plain[r], decoder[r], 0.05,
					"features are held as long as the decoder takes")
			case v.e.Over == layout.OverOwn:
				require.InEpsilon(t, plain[r], encoder[r], 0.05)
				require.Less(t, decoder[r], plain[r])
			}
		}
	}
}

// TestPartsPrecision: parts of different dtypes keep their parameters in theirs and learn what float32
// learns within the roundings of the coarser one (as in TestHalfPrecision); gradients cross into the parts
// before. Other layouts agree as in TestVisionLayouts.
func TestPartsPrecision(t *testing.T) {
	m := visionModel(t, "qwen3-vl")
	whole := visionPlan{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}
	// only encoder and projector learn
	ahead := visionPlan{pp: 1, dp: 1, tp: 1, schedule: "1f1b", frozen: "decoder"}
	want := whole.train(t, whole.job(m), 4, nil)
	_, norms := ahead.learn(t, ahead.job(m), 1, nil)
	f32, bf16 := fit.ComponentPlan{DType: tensor.F32}, fit.ComponentPlan{DType: tensor.BF16}
	for name, c := range map[string]func(string) fit.ComponentPlan{"encoder": parts(bf16, f32, f32),
		"projector": parts(f32, bf16, f32), "decoder": parts(f32, f32, bf16)} {
		t.Run(name, func(t *testing.T) {
			j := whole.job(m)
			j.Component = c
			got := whole.train(t, j, 4, nil)
			require.NotEqual(t, want, got)
			require.InEpsilon(t, want[0], got[0], math.Sqrt(40)/512)
			for i := range want {
				require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 0.03, "step %d: %v, want %v", i+1,
					got, want)
			}
			l, err := layout.New(j)
			require.NoError(t, err)
			for _, p := range l.Ranks[0].All {
				require.Equal(t, c(m.Component(p.Name)).DType, p.Value.DType, p.Name)
			}
			j = ahead.job(m)
			j.Component = c
			_, n := ahead.learn(t, j, 1, nil)
			require.InEpsilon(t, norms[0], n[0], 0.03, "norm of the gradients of encoder and projector")
			for _, v := range []visionPlan{{pp: 3, dp: 1, tp: 1, schedule: "1f1b"},
				{pp: 2, dp: 1, tp: 1, schedule: "zb-h1", e: &layout.PartPlan{TP: 1, Over: layout.OverOwn,
					Ranks: 1, Fill: true}}} {
				j := v.job(m)
				j.Component = c
				for i, x := range v.train(t, j, 4, nil) {
					require.InEpsilon(t, got[i], x, 1e-4, "%v", v)
				}
			}
		})
	}
}

// TestRecomputeFirst: with a number of layers a stage, these recompute and the others keep, to the same bits.
func TestRecomputeFirst(t *testing.T) {
	m := tiny(false)
	v := variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}
	want, _ := v.train(t, m, 3, refBackend)
	memory := map[string][]int64{}
	for name, first := range map[string][]int{"full": nil, "one": {1}, "two and none": {2, 0}, "none": {0}} {
		var losses []float64
		l, o := v.run(t, m, 3, refBackend, &losses)
		j := *l.Design
		j.Recompute, j.RecomputeLayers = grad.RecomputeFull, first
		l, err := layout.New(&j)
		require.NoError(t, err)
		require.NoError(t, Run(l, o))
		require.Equal(t, want, losses, name)
		for r := range l.Ranks {
			memory[name] = append(memory[name], l.Memory(r).Activations)
		}
	}
	require.Less(t, memory["full"][0], memory["one"][0])
	require.Less(t, memory["one"][0], memory["none"][0])
	require.Less(t, memory["full"][1], memory["none"][1])
	require.Equal(t, []int64{memory["full"][0], memory["none"][1]}, memory["two and none"])
}
