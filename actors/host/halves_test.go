package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/topology"
)

// halvedDenoiser is a case of denoisers whose model is two of its kind, both with the case's weights: its
// samples have levels 0.7 and 0.25, so that each model has one.
func halvedDenoiser(t *testing.T, name string) *denoised {
	g := openDenoiser(t, name)
	low, err := family.Build(g.m.Config, 0)
	require.NoError(t, err)
	require.NoError(t, family.Halved(g.m, low, 500))
	g.m.Denoiser.Follow()
	src, err := checkpoint.OpenDir(denoisersDir + "/" + name)
	require.NoError(t, err)
	t.Cleanup(func() { src.Close() })
	g.w, err = g.m.OpenWeights(src, name)
	require.NoError(t, err)
	return g
}

// byThemselves are the losses of both models trained each by itself, on its own sample.
func byThemselves(t *testing.T, name string, steps int64) []float64 {
	sum := make([]float64, steps)
	for sample := range 2 {
		g := openDenoiser(t, name)
		all := g.alone(1)
		g.each = func(step int64, replica int) ([]family.Microbatch, error) {
			mbs, err := all(step, replica)
			return mbs[sample : sample+1], err
		}
		g.AdamW = &adamWFacts{LR: 1e-3, Eps: 1e-8, Betas: []float64{0.9, 0.95}}
		losses, _ := g.train(topology.Grid(1, 1, 1), goldenBackends["cpu"], steps, nil)
		for i, l := range losses {
			sum[i] += l
		}
	}
	return sum
}

// TestHalves trains two models that share out the levels of noise in one run, and holds it to both trained by
// themselves: microbatches of one level's sample each, and one microbatch of both.
func TestHalves(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"wan", "wan-i2v", "qwen-image", "flux"} {
		const steps = 4
		want := byThemselves(t, name, steps)
		g := halvedDenoiser(t, name)
		require.Equal(t, 2*g.Parameters, g.m.Count())
		g.AdamW = &adamWFacts{LR: 1e-3, Eps: 1e-8, Betas: []float64{0.9, 0.95}}
		got, _ := g.train(topology.Grid(1, 1, 1), goldenBackends["cpu"], steps, nil)
		require.InEpsilonSlice(t, want, got, 1e-5, name)
		mbs, err := g.alone(1)(0, 0)
		require.NoError(t, err)
		for i, mb := range mbs { // nothing is computed of the other model
			s := g.m.Shape(len(mb.IDs), g.m.Class(mb.Inputs(), false))
			require.Equal(t, []int{1 - i, i}, []int{s.Dim("high_levels"), s.Dim("low_levels")})
		}
		for _, v := range denoisePlans {
			if name != "wan" && v.zero < 2 {
				continue
			}
			t.Run(name+" "+v.String(), func(t *testing.T) {
				g := halvedDenoiser(t, name)
				g.each = g.alone(v.dp)
				g.AdamW = &adamWFacts{LR: 1e-3, Eps: 1e-8, Betas: []float64{0.9, 0.95}}
				rows := 0
				for _, s := range g.Samples {
					rows = max(rows, s.Tokens)
				}
				parts := 2 * v.cp * v.tp
				g.plan = func(j *layout.Design) {
					j.Schedule, j.Zero, j.SeqParallel, j.Recompute = v.schedule, v.zero, v.sp, v.recompute
					j.Micro, j.Rows = len(g.Samples)/v.dp, (rows+parts-1)/parts*parts
					j.Overlap, j.Ring = v.overlap, v.ring
				}
				got, _ := g.train(layout.MeshOf(&configs.Plan{PP: v.pp, DP: v.dp, TP: v.tp, CP: v.cp,
					Ulysses: v.u, EP: 1,
					ETP: 1}), goldenBackends["cpu"], steps, nil)
				require.InEpsilonSlice(t, want, got, 1e-5)
			})
		}
	}
}
