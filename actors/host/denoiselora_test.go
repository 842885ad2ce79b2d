package host

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/topology"
)

// TestDenoisersLora: with the adapters that a pipeline of diffusers saved, five steps on them alone have the losses
// of diffusers within 1e-5 and the first gradient of each its sum of squares within 1e-4, also over stages and
// tensor-parallel ranks; the names are those of the file, all of them.
func TestDenoisersLora(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"wan", "flux", "qwen-image", "sd3.5"} {
		dir := filepath.Join("testdata/diffusers-lora", name)
		var facts struct {
			Targets []string
			R       int
			Alpha   float64
			Losses  []float64
			Squares map[string]float64
		}
		text, err := os.ReadFile(filepath.Join(dir, "golden.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &facts))
		maps.DeleteFunc(facts.Squares, func(_ string, v float64) bool { return v == 0 })
		adapters, err := checkpoint.OpenFile(filepath.Join(dir, "pytorch_lora_weights.safetensors"))
		require.NoError(t, err)
		t.Cleanup(func() { adapters.Close() })
		lora := &block.Lora{Rank: facts.R, Alpha: facts.Alpha}
		for _, pattern := range facts.Targets {
			lora.Targets = append(lora.Targets, "*."+pattern)
		}
		for _, mesh := range []topology.Mesh{topology.Grid(1, 1, 1), topology.Grid(2, 1, 2)} {
			t.Run(name, func(t *testing.T) {
				g := openDenoiser(t, name)
				all, err := g.m.PEFT(lora)
				require.NoError(t, err)
				var names, want []string
				for _, a := range all {
					for _, x := range a.Tensors("transformer.") {
						names = append(names, x.Name)
					}
				}
				for _, x := range adapters.Tensors() { // those that nothing reads have no adapter here
					if facts.Squares[strings.TrimPrefix(x.Name, "transformer.")] > 0 {
						want = append(want, x.Name)
					}
				}
				slices.Sort(names)
				require.Equal(t, slices.Sorted(slices.Values(want)), names)
				g.learnsAdapters(t, mesh, lora, adapters, facts.Losses, facts.Squares)
			})
		}
	}
}

// learnsAdapters trains adapters and compares losses and first gradients.
func (g *denoised) learnsAdapters(t *testing.T, mesh topology.Mesh, lora *block.Lora,
	adapters *checkpoint.File,
	losses []float64, squares map[string]float64) {
	t.Helper()
	g.AdamW = &adamWFacts{LR: 1e-3, Eps: 1e-8, Betas: []float64{0.9, 0.95}}
	rows := 0
	for _, s := range g.Samples {
		rows += s.Tokens
	}
	g.plan = func(j *layout.Design) {
		j.Lora, j.Rows = lora, (rows+3)/4*4
		j.Frozen = func(name string) bool { return !strings.Contains(name, ".lora_") }
	}
	g.own = func(kind string, p *grad.Param, r family.Region, dst []float32) (bool, error) {
		switch {
		case kind != "param":
			return false, nil
		case !strings.Contains(p.Name, ".lora_"):
			return g.w.Read(p, r, dst)
		}
		row, n, col, cols := r.Box(p)
		raw := make([]byte, 4*len(dst))
		err := adapters.ReadRanges("transformer."+p.Name, [][2]int{{row, row + n}, {col, col + cols}}, raw)
		tensor.Widen(tensor.F32, raw, dst)
		return true, err
	}
	sums := map[string]float64{}
	got, _ := g.train(mesh, goldenBackends["cpu"], 1, func(_ *layout.Layout, _ int, r *Rank) {
		if mesh.Size() > 1 { // ranks hold parts of them
			return
		}
		for _, p := range r.c.Params {
			for _, v := range r.owned[p.Name].F32() {
				sums[p.Name] += float64(v) * float64(v)
			}
		}
	})
	require.InEpsilon(t, losses[0], got[0], 1e-5)
	if mesh.Size() == 1 {
		require.Equal(t, slices.Sorted(maps.Keys(squares)), slices.Sorted(maps.Keys(sums)))
		for name, want := range squares {
			require.InEpsilon(t, 1+want, 1+sums[name], 1e-4, name)
		}
	}
	got, _ = g.train(mesh, goldenBackends["cpu"], 5, nil)
	require.InEpsilonSlice(t, losses, got, 1e-5)
}
