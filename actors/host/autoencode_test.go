package host

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
	"github.com/lfactor/lfactor/topology"
)

// autoencodersDir has the cases of bench/golden/autoencoders.py.
const autoencodersDir = "../../stages/family/autoencoders/testdata"

func autoencoders(t *testing.T) (names []string) {
	entries, err := os.ReadDir(autoencodersDir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.NotEmpty(t, names)
	return names
}

// openAutoencoder opens one of them.
func openAutoencoder(t *testing.T, name string) *denoised {
	dir := filepath.Join(autoencodersDir, name)
	g := &denoised{}
	text, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, g))
	var more struct{ KL float64 }
	require.NoError(t, json.Unmarshal(text, &more))
	g.t = t
	c, err := configs.ReadModel(dir)
	require.NoError(t, err)
	g.m, err = family.Build(c, 0)
	require.NoError(t, err)
	s := g.Samples[0].Shape
	target, ok := noise.Lookup("sample")
	require.True(t, ok)
	g.m.Denoiser.Process = family.Process{Target: target, Loss: kernels.SquaredLoss, KL: more.KL,
		Size: [3]int(s[1:])}
	src, err := checkpoint.OpenDir(dir)
	require.NoError(t, err)
	t.Cleanup(func() { src.Close() })
	g.w, err = g.m.OpenWeights(src, dir)
	require.NoError(t, err)
	g.file, err = checkpoint.OpenFile(filepath.Join(dir, "golden.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { g.file.Close() })
	mb := family.Microbatch{Cu: []int32{0}}
	var items []family.Encoded
	for i, s := range g.Samples {
		id := string(rune('0' + i))
		shape, eps := g.read("eps." + id) // channels first, and here they are last
		each := len(eps) / shape[0]
		x := family.Encoded{From: mb.Cu[i], X0: g.m.Denoiser.Tokens(s.Shape, g.floats("x0."+id)),
			Grid: [3]int(s.Shape[1:]), Noise: make([]float32, 3*s.Tokens)}
		for k, v := range eps {
			x.Noise[k%each*shape[0]+k/each] = float32(v)
		}
		items = append(items, x)
		mb.Cu = append(mb.Cu, mb.Cu[i]+int32(s.Tokens))
	}
	n := int(mb.Cu[len(mb.Cu)-1])
	require.NoError(t, g.m.Denoiser.Check(items, n))
	mb.IDs, mb.Targets, mb.Positions = make([]int32, n), make([]int32, n), make([]int32, n)
	for range n {
		mb.Weights = append(mb.Weights, 1/float32(n))
	}
	mb.More = family.EncodedKey.With(mb.More, items)
	g.made = &mb
	return g
}

// TestAutoencoders holds the training of autoencoders to PyTorch over diffusers' modules: what comes back of
// pictures and clips and the loss within 1e-5, every gradient within 1e-4 and twenty steps of AdamW within 1e-4;
// then three steps under plans within 1e-5.
func TestAutoencoders(t *testing.T) {
	t.Parallel()
	for _, name := range autoencoders(t) {
		t.Run(name, func(t *testing.T) {
			g := openAutoencoder(t, name)
			require.Equal(t, g.Parameters, g.m.Count())
			for bn, make := range goldenBackends {
				_, got := g.forward(make(), tensor.F32, true)
				var want []float64
				for i, s := range g.Samples {
					for _, v := range g.m.Denoiser.Tokens(s.Shape, g.floats("pred."+string(rune('0'+i)))) {
						want = append(want, float64(v))
					}
				}
				require.LessOrEqual(t, relative(got, want), 1e-5, bn)
				loss, _ := g.forward(make(), tensor.F32, false)
				require.InEpsilon(t, g.Loss, loss, 1e-5, bn)
			}
			g.trains(topology.Grid(1, 1, 1), 20, nil)
		})
		for _, v := range []denoisePlan{{pp: 2, dp: 1, tp: 1, cp: 1, schedule: "1f1b"},
			{pp: 4, dp: 1, tp: 1, cp: 1, schedule: "zb-h1"}, {pp: 1, dp: 2, tp: 1, cp: 1, zero: 3,
				schedule: "1f1b"},
			{pp: 2, dp: 2, tp: 1, cp: 1, zero: 1, schedule: "1f1b", recompute: grad.RecomputeFull},
			{pp: 1, dp: 1, tp: 1, cp: 2, schedule: "1f1b"}, {pp: 1, dp: 1, tp: 1, cp: 4, schedule: "1f1b"},
			{pp: 2, dp: 1, tp: 1, cp: 2, zero: 1, schedule: "1f1b", recompute: grad.RecomputeFull},
			{pp: 1, dp: 2, tp: 1, cp: 2, zero: 3, schedule: "1f1b"}} {
			t.Run(name+" "+v.String(), func(t *testing.T) {
				g := openAutoencoder(t, name)
				g.each = g.alone(v.dp)
				g.trains(layout.MeshOf(&configs.Plan{PP: v.pp, DP: v.dp, TP: 1, CP: v.cp, EP: 1, ETP: 1}), 3,
					func(j *layout.Design) {
						j.Schedule, j.Zero, j.Recompute = v.schedule, v.zero, v.recompute
						j.Micro, j.Rows = len(g.Samples)/v.dp, g.Samples[0].Tokens
					})
			})
		}
	}
}
