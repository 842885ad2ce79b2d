package denoisers_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	_ "github.com/lfactor/lfactor/stages/family/all"
	"github.com/lfactor/lfactor/stages/noise"
	"github.com/lfactor/lfactor/stages/sample"
)

// golden is a case of bench/golden/denoisers.py: a small model of diffusers and what it says of two noisy samples.
type golden struct {
	Samples []struct {
		Shape  [4]int
		Sigma  float64
		Tokens int
	}
	Parameters int64
	TextRows   int `json:"text_rows"`
	Guidance   float64
	Frames     [][6]float32
	ImageRows  int        `json:"image_rows"`
	Further    [][][2]int // rows and columns of the images that are given behind the one of each sample
	First      int        // frames of tokens that are given clean
	t          *testing.T
	m          *family.Model
	file       *checkpoint.File
}

// floats are the numbers of a tensor beside the weights, nil where there is none.
func (g *golden) floats(name string) (out []float32) {
	for _, i := range g.file.Tensors() {
		if i.Name == name {
			raw := make([]byte, i.Bytes)
			require.NoError(g.t, g.file.ReadInto(name, 0, i.Bytes, raw))
			out = make([]float32, tensor.Len(i.Shape))
			tensor.Widen(tensor.F32, raw, out)
		}
	}
	return out
}

// items are both samples, one behind the other.
func (g *golden) items() (items []family.Encoded) {
	d, at := g.m.Denoiser, int32(0)
	for i, s := range g.Samples {
		id := fmt.Sprint(i)
		x := family.Encoded{From: at, X0: d.Tokens(s.Shape, g.floats("x0."+id)),
			Noise: d.Tokens(s.Shape, g.floats("noise."+id)), Grid: d.Grid(s.Shape),
			Text: d.Padded(g.floats("text." + id)), Pool: g.floats("pool." + id), Clean: g.First, Image: g.floats("image." + id),
			Level: &noise.Level{Alpha: float32(1 - s.Sigma), Sigma: float32(s.Sigma), Time: float32(1000 * s.Sigma)}}
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
		at += int32(s.Tokens)
	}
	require.NoError(g.t, d.Check(items, int(at)))
	return items
}

// TestDenoisersAreDiffusers: what each model of diffusion predicts, with weights of diffusers, is what that does, within
// sums of at most 60 products in another order through two blocks.
func TestDenoisersAreDiffusers(t *testing.T) {
	t.Parallel()
	all, err := os.ReadDir("testdata")
	require.NoError(t, err)
	require.Greater(t, len(all), 10)
	for _, e := range all {
		t.Run(e.Name(), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("testdata", e.Name())
			g := &golden{t: t}
			text, err := os.ReadFile(filepath.Join(dir, "golden.json"))
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(text, g))
			c, err := configs.ReadModel(dir)
			require.NoError(t, err)
			g.m, err = family.Build(c, 0)
			require.NoError(t, err)
			d := g.m.Denoiser
			if d.TextRows = g.TextRows; d.Images > 0 {
				d.ImageRows = g.ImageRows
			}
			target, ok := noise.Lookup("flow_prediction")
			require.True(t, ok)
			d.Process.First, d.Process.Target, d.Process.Guide = float64(g.First), target, g.Guidance
			require.Equal(t, g.Parameters, g.m.Count())
			src, err := checkpoint.OpenDir(dir)
			require.NoError(t, err)
			defer src.Close()
			w, err := g.m.OpenWeights(src, dir)
			require.NoError(t, err)
			s, err := sample.New(g.m, nil, tensor.F32, ref.New(), tensor.NewPool(dir, 0), func(p *grad.Param,
				r family.Region, dst []float32) error {
				_, err := w.Read(p, r, dst)
				return err
			})
			require.NoError(t, err)
			defer s.Close()
			g.file, err = checkpoint.OpenFile(filepath.Join(dir, "golden.safetensors"))
			require.NoError(t, err)
			defer g.file.Close()
			items := g.items()
			rows, err := s.Predict(items)
			require.NoError(t, err)
			off, most := 0.0, 0.0
			for i, x := range items {
				want := d.Tokens(g.Samples[i].Shape, g.floats(fmt.Sprintf("pred.%d", i)))
				for k, v := range rows[int(x.From)*d.Width():][:len(want)] {
					off, most = off+math.Pow(float64(v-want[k]), 2), most+math.Pow(float64(want[k]), 2)
				}
			}
			require.LessOrEqual(t, math.Sqrt(off/most), 1e-5)
		})
	}
}
