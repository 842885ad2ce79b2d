package host

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
	"github.com/lfactor/lfactor/topology"
)

// denoisersDir has the cases of bench/golden/denoisers.py.
const denoisersDir = "../../stages/family/denoisers/testdata"

// denoised is one of them.
type denoised struct {
	Samples []struct {
		Shape  [4]int
		Sigma  float64
		Tokens int
	}
	Loss       float64
	Losses     []float64
	Dead       []string // parameters that torch gives no gradient
	Parameters int64
	TextRows   int `json:"text_rows"`
	Guidance   float64
	Frames     [][6]float32
	ImageRows  int        `json:"image_rows"`
	Further    [][][2]int // rows and columns of the images that are given behind the one of each sample
	First      int        // frames of tokens that are given clean
	golden
}

func denoisers(t *testing.T) (names []string) {
	entries, err := os.ReadDir(denoisersDir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.NotEmpty(t, names)
	return names
}

func openDenoiser(t *testing.T, name string) *denoised {
	dir := filepath.Join(denoisersDir, name)
	g := &denoised{}
	text, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, g))
	g.t = t
	c, err := configs.ReadModel(dir)
	require.NoError(t, err)
	g.m, err = family.Build(c, 0)
	require.NoError(t, err)
	g.m.Denoiser.TextRows = g.TextRows
	if g.m.Denoiser.Images > 0 {
		g.m.Denoiser.ImageRows = g.ImageRows
	}
	g.m.Denoiser.Process.First = float64(g.First)
	target, ok := noise.Lookup("flow_prediction")
	require.True(t, ok)
	g.m.Denoiser.Process.Target, g.m.Denoiser.Process.Guide = target, g.Guidance
	src, err := checkpoint.OpenDir(dir)
	require.NoError(t, err)
	t.Cleanup(func() { src.Close() })
	g.w, err = g.m.OpenWeights(src, dir)
	require.NoError(t, err)
	g.file, err = checkpoint.OpenFile(filepath.Join(dir, "golden.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { g.file.Close() })
	mb := g.microbatch()
	g.made = &mb
	return g
}

func (g *denoised) floats(name string) (out []float32) {
	_, v := g.read(name)
	for _, x := range v {
		out = append(out, float32(x))
	}
	return out
}

// microbatch is both samples in one, with noise and levels as they are given.
func (g *denoised) microbatch() family.Microbatch {
	d, mb := g.m.Denoiser, family.Microbatch{Cu: []int32{0}}
	var items []family.Encoded
	for i, s := range g.Samples {
		id, at := string(rune('0'+i)), mb.Cu[i]
		x := family.Encoded{From: at, X0: d.Tokens(s.Shape, g.floats("x0."+id)),
			Noise: d.Tokens(s.Shape, g.floats("noise."+id)), Grid: d.Grid(s.Shape),
			Text: d.Padded(g.floats("text." + id)), Pool: g.floats("pool." + id),
			Level: &noise.Level{Alpha: float32(1 - s.Sigma), Sigma: float32(s.Sigma),
				Time: float32(1000 * s.Sigma)}}
		x.Clean, x.Image = g.First, g.floats("image."+id)
		if given := g.floats("given." + id); given != nil {
			x.Given = d.Tokens([4]int{d.Given, s.Shape[1], s.Shape[2], s.Shape[3]}, given)
		}
		if g.Further != nil {
			for k, size := range g.Further[i] {
				shape := [4]int{s.Shape[0], 1, size[0], size[1]}
				rows := d.Tokens(shape, g.floats(fmt.Sprintf("with.%s.%d", id, k)))
				x.With, x.X0 = append(x.With, d.Grid(shape)), append(x.X0, rows...)
				x.Noise = append(x.Noise, make([]float32, len(rows))...)
			}
		}
		if g.Frames != nil {
			x.Frame = g.Frames[i]
		}
		items = append(items, x)
		mb.Cu = append(mb.Cu, at+int32(s.Tokens))
	}
	n := int(mb.Cu[len(mb.Cu)-1])
	require.NoError(g.t, d.Check(items, n))
	mb.IDs, mb.Targets, mb.Positions = make([]int32, n), make([]int32, n), make([]int32, n)
	for range n {
		mb.Weights = append(mb.Weights, 1/float32(n))
	}
	mb.More = family.EncodedKey.With(mb.More, items)
	return mb
}

// TestDenoisers holds every model of diffusion to diffusers: what it predicts and the loss within 1e-5, every
// gradient within 1e-4 and twenty steps of AdamW within 1e-4, all relative, in float32: bounded by sums of at
// most 60 products in another order through two blocks, and for the curve by what steps make of that.
func TestDenoisers(t *testing.T) {
	t.Parallel()
	for _, name := range denoisers(t) {
		t.Run(name, func(t *testing.T) {
			g := openDenoiser(t, name)
			require.Equal(t, g.Parameters, g.m.Count())
			for bn, make := range goldenBackends {
				_, got := g.forward(make(), tensor.F32, true)
				var want []float64
				for i, s := range g.Samples {
					for _, v := range g.m.Denoiser.Tokens(s.Shape, g.floats("pred."+string(rune('0'+i)))) {
						want = append(want, float64(v))
					}
				}
				require.LessOrEqual(t, relative(g.predicted(got), want), 1e-5, bn)
				loss, _ := g.forward(make(), tensor.F32, false)
				require.InEpsilon(t, g.Loss, loss, 1e-5, bn)
			}
			g.trains(topology.Grid(1, 1, 1), 20, nil)
		})
	}
}

// predicted are the rows of what a model gives that a sample's own image has.
func (g *denoised) predicted(rows []float32) (out []float32) {
	for _, x := range family.EncodedKey.Of(g.made.More) {
		w := g.m.Denoiser.Width()
		out = append(out, rows[int(x.From)*w:][:x.Grid[0]*x.Grid[1]*x.Grid[2]*w]...)
	}
	return out
}

// alone are the microbatches of one replica of so many, one a sample.
func (g *denoised) alone(dp int) BatchFunc {
	whole := *g.made
	items := family.EncodedKey.Of(whole.More)
	return func(_ int64, replica int) (out []family.Microbatch, err error) {
		for i := replica; i < len(items); i += dp {
			from, to := whole.Cu[i], whole.Cu[i+1]
			x := items[i]
			x.From = 0
			out = append(out, family.Microbatch{IDs: whole.IDs[from:to], Targets: whole.Targets[from:to],
				Positions: whole.Positions[from:to], Weights: whole.Weights[from:to],
				Cu: []int32{0, to - from}, More: family.EncodedKey.With(family.More{}, []family.Encoded{x}),
				Images: between(whole.Images, from, to)})
		}
		return out, nil
	}
}

// between are the images of rows from one on up to another, counted from the first of them.
func between(all family.Images, from, to int32) (out family.Images) {
	at := 0
	for _, g := range all.Grids {
		n := g.Patches() * len(all.Values) / max(1, all.Patches())
		if s := g.Spans[0]; from <= s[0] && s[1] <= to {
			g.Spans = [][2]int32{{s[0] - from, s[1] - from}}
			out.Grids, out.Values = append(out.Grids, g), append(out.Values, all.Values[at:at+n]...)
		}
		at += n
	}
	return out
}

// denoisePlan is a plan for models of diffusion.
type denoisePlan struct {
	pp, dp, tp, cp, u, zero int
	sp                      bool
	schedule                string
	recompute               grad.Recompute
	overlap                 bool
	ring                    bool
}

func (v denoisePlan) String() string {
	return fmt.Sprintf("pp%d dp%d tp%d cp%d u%d zero%d sp=%v %s %v overlap=%v ring=%v", v.pp, v.dp, v.tp,
		v.cp, v.u, v.zero,
		v.sp, v.schedule, v.recompute, v.overlap, v.ring)
}

var denoisePlans = []denoisePlan{
	{pp: 2, dp: 1, tp: 1, cp: 1, schedule: "1f1b"},
	{pp: 2, dp: 1, tp: 1, cp: 1, schedule: "zb-h1"},
	{pp: 4, dp: 1, tp: 1, cp: 1, schedule: "1f1b", recompute: grad.RecomputeFull},
	{pp: 1, dp: 2, tp: 1, cp: 1, schedule: "1f1b"},
	{pp: 1, dp: 2, tp: 1, cp: 1, zero: 1, schedule: "1f1b"},
	{pp: 1, dp: 2, tp: 1, cp: 1, zero: 2, schedule: "1f1b"},
	{pp: 1, dp: 2, tp: 1, cp: 1, zero: 3, schedule: "1f1b", recompute: grad.RecomputeFull},
	{pp: 1, dp: 1, tp: 2, cp: 1, schedule: "1f1b"},
	{pp: 1, dp: 1, tp: 2, cp: 1, sp: true, schedule: "1f1b"},
	{pp: 1, dp: 1, tp: 2, cp: 1, sp: true, schedule: "1f1b", recompute: grad.RecomputeFull},
	{pp: 1, dp: 1, tp: 1, cp: 2, schedule: "1f1b"},
	{pp: 1, dp: 1, tp: 1, cp: 2, zero: 1, schedule: "1f1b", recompute: grad.RecomputeFull},
	{pp: 1, dp: 1, tp: 1, cp: 2, u: 2, schedule: "1f1b"},
	{pp: 1, dp: 1, tp: 1, cp: 3, schedule: "1f1b"},
	{pp: 1, dp: 1, tp: 1, cp: 4, u: 2, schedule: "1f1b"},
	{pp: 1, dp: 1, tp: 2, cp: 2, sp: true, schedule: "1f1b"},
	{pp: 2, dp: 1, tp: 2, cp: 1, sp: true, schedule: "1f1b"},
	{pp: 2, dp: 2, tp: 1, cp: 1, zero: 1, schedule: "1f1b", overlap: true},
	{pp: 2, dp: 1, tp: 1, cp: 2, zero: 1, schedule: "zb-h1"},
	{pp: 1, dp: 2, tp: 1, cp: 2, zero: 3, schedule: "1f1b", overlap: true},
	{pp: 2, dp: 1, tp: 2, cp: 2, sp: true, schedule: "1f1b", overlap: true},
	{pp: 1, dp: 2, tp: 2, cp: 1, zero: 2, sp: true, schedule: "1f1b", recompute: grad.RecomputeFull},
	{pp: 2, dp: 2, tp: 2, cp: 1, zero: 1, schedule: "1f1b", recompute: grad.RecomputeFull},
	{pp: 2, dp: 1, tp: 1, cp: 1, schedule: "gpipe", recompute: grad.RecomputeFull},
	{pp: 1, dp: 1, tp: 1, cp: 2, ring: true, schedule: "1f1b"},
	{pp: 1, dp: 1, tp: 1, cp: 3, ring: true, schedule: "1f1b", recompute: grad.RecomputeFull},
	{pp: 2, dp: 1, tp: 2, cp: 2, ring: true, sp: true, schedule: "1f1b", overlap: true},
	{pp: 1, dp: 1, tp: 1, cp: 4, u: 2, ring: true, schedule: "1f1b"},
}

// TestDenoisersPlans trains every model of diffusion under plans of each axis and holds three steps to those
// of one device in PyTorch.
func TestDenoisersPlans(t *testing.T) {
	t.Parallel()
	for _, name := range denoisers(t) {
		for _, v := range denoisePlans {
			t.Run(name+" "+v.String(), func(t *testing.T) {
				g := openDenoiser(t, name)
				g.each = g.alone(v.dp)
				rows := 0
				for _, s := range g.Samples {
					rows = max(rows, s.Tokens)
				}
				parts := 2 * v.cp * v.tp
				mesh := layout.MeshOf(&configs.Plan{PP: v.pp, DP: v.dp, TP: v.tp, CP: v.cp, Ulysses: v.u,
					EP:  1,
					ETP: 1})
				g.trains(mesh, 3, func(j *layout.Design) {
					j.Schedule, j.Zero, j.SeqParallel, j.Recompute = v.schedule, v.zero, v.sp, v.recompute
					j.Micro, j.Rows = len(g.Samples)/v.dp, (rows+parts-1)/parts*parts
					j.Overlap, j.Ring = v.overlap, v.ring
				})
			})
		}
	}
}

// trains compares gradients and losses with the case's.
func (g *denoised) trains(mesh topology.Mesh, steps int, plan func(*layout.Design)) {
	t := g.t
	g.AdamW = &adamWFacts{LR: 1e-3, Eps: 1e-8, Betas: []float64{0.9, 0.95}}
	g.plan = plan
	got := map[string][]float32{}
	losses, _ := g.train(mesh, goldenBackends["cpu"], int64(steps), func(_ *layout.Layout, _ int, r *Rank) {
		if mesh.Size() > 1 {
			return
		}
		for _, p := range r.c.Params {
			if p.Rule.Op != "" { // it has sums in place of a gradient
				continue
			}
			got[p.Name] = append([]float32(nil), r.owned[p.Name].F32()...)
		}
	})
	bound := 1e-5
	if steps > 3 {
		bound = 1e-4
	}
	require.InEpsilonSlice(t, g.Losses[:steps], losses, bound)
	if mesh.Size() > 1 {
		return
	}
	var params []*grad.Param
	for _, p := range g.m.Params(nil) {
		s := g.m.Source(p.Name)
		_, want := g.read("grad." + s.Name)
		if want == nil {
			require.Contains(t, g.Dead, s.Name)
			require.Zero(t, length(got[p.Name]), p.Name) // what another phase learns has one of zeros
			delete(got, p.Name)
			continue
		}
		if want = rowsIn(want, s, p.Shape); slices.Max(want) == 0 &&
			slices.Min(want) == 0 { // nothing reads what it makes
			require.Zero(t, length(got[p.Name]), p.Name)
			delete(got, p.Name)
			continue
		}
		params = append(params, p)
		// softmax of keys that do not turn does not see a bias of theirs, and of equal values nothing that
		// asks for them: zero, and rounding
		key := strings.HasSuffix(p.Name, ".to_k.bias") || strings.Contains(p.Name, ".k_proj.") ||
			strings.Contains(p.Name, ".q_proj.") || strings.HasSuffix(p.Name,
			".pool.nets.bias") // of a spatial softmax
		if small := 1e-6 * max(1, g.Loss); key && slices.Max(want) < small && slices.Min(want) > -small {
			require.Less(t, length(got[p.Name]), 10*small, p.Name)
			continue
		}
		require.LessOrEqual(t, relative(got[p.Name], want), 1e-4, p.Name)
	}
	require.Len(t, got, len(params))
}
