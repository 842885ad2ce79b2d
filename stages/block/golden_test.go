package block_test

import (
	"encoding/json"
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
	"github.com/lfactor/lfactor/stages/sample"
)

// floats are the numbers of a tensor of a file.
func floats(t *testing.T, f *checkpoint.File, name string) (out []float32) {
	t.Helper()
	for _, i := range f.Tensors() {
		if i.Name != name {
			continue
		}
		raw := make([]byte, i.Bytes)
		require.NoError(t, f.ReadInto(name, 0, i.Bytes, raw))
		out = make([]float32, tensor.Len(i.Shape))
		if i.DType == "I32" {
			for k, v := range tensor.Of(tensor.U8, raw, len(raw)).View(0, tensor.I32, len(out)).I32() {
				out[k] = float32(v)
			}
			return out
		}
		tensor.Widen(tensor.F32, raw, out)
	}
	return out
}

func whole(v []float32) (out []int32) {
	for _, x := range v {
		out = append(out, int32(x))
	}
	return out
}

// models calls f with every golden model, of texts or of pictures.
func models(t *testing.T, sees bool, f func(t *testing.T, g *golden)) (tried int) {
	t.Helper()
	const root = "../family/testdata"
	all, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, e := range all {
		dir := filepath.Join(root, e.Name())
		c, err := configs.ReadModel(dir)
		require.NoError(t, err)
		m, err := family.Build(c, 24)
		require.NoError(t, err)
		if (m.Vision != nil) != sees {
			continue
		}
		tried++
		t.Run(e.Name(), func(t *testing.T) {
			t.Parallel()
			f(t, open(t, m, dir))
		})
	}
	return tried
}

// golden is a small model of transformers (bench/golden/family_golden.py) with its weights, and what it computes.
type golden struct {
	*sample.Generator
	m         *family.Model
	file      *checkpoint.File
	Documents [][]int32
	Images    []struct {
		Grid  [3]int
		Spans [][2]int32
		Video bool
		Every float64
	}
}

func open(t *testing.T, m *family.Model, dir string) *golden {
	weights, err := checkpoint.OpenFile(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	defer weights.Close()
	w, err := m.OpenWeights(weights, dir)
	require.NoError(t, err)
	g := &golden{m: m}
	text, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, g))
	g.Generator, err = sample.New(m, nil, tensor.F32, ref.New(), tensor.NewPool(dir, 0), func(p *grad.Param, r family.Region,
		dst []float32) error {
		found, err := w.Read(p, r, dst)
		require.True(t, found || err != nil, p.Name)
		return err
	})
	require.NoError(t, err)
	t.Cleanup(g.Close)
	g.file, err = checkpoint.OpenFile(filepath.Join(dir, "golden.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { g.file.Close() })
	return g
}

// borders are those of the documents, which lie one behind the other.
func (g *golden) borders() []int32 {
	cu := []int32{0}
	for _, lengths := range g.Documents {
		for _, n := range lengths {
			cu = append(cu, cu[len(cu)-1]+n)
		}
	}
	return cu
}

// near holds rows of logits to transformers'. Both compute in float32, so that sums of at most 80 products in another
// order, through two or three layers, bound the difference.
func near(t *testing.T, want, got []float32) {
	t.Helper()
	require.Len(t, got, len(want))
	d, n := 0.0, 0.0
	for i, x := range want {
		d += math.Pow(float64(got[i]-x), 2)
		n += math.Pow(float64(x), 2)
	}
	require.LessOrEqual(t, math.Sqrt(d/n), 1e-4)
}

// TestLayersAreTransformers: the layers of every decoder of texts, with weights of transformers, give its logits of packed
// documents, and those of one document that is fed in two parts, of which the second sees what was kept of the first.
func TestLayersAreTransformers(t *testing.T) {
	t.Parallel()
	require.Greater(t, models(t, false, func(t *testing.T, g *golden) {
		ids, want := whole(floats(t, g.file, "ids")), floats(t, g.file, "logits")
		got, err := g.AllLogits(ids, whole(floats(t, g.file, "positions")), g.borders())
		require.NoError(t, err)
		near(t, want, got)
		if r := g.m.Spec.Rope.Type; r == "longrope" || r == "dynamic" {
			return // its turns follow from the longest document
		}
		n := g.borders()[1]
		g.Reset()
		got, err = g.Logits(ids[:n/2])
		require.NoError(t, err)
		more, err := g.Logits(ids[n/2 : n])
		require.NoError(t, err)
		near(t, want[:len(want)/len(ids)*int(n)], append(got, more...))
	}), 60)
}

// TestTowersAreTransformers: so do the encoders and projectors of pictures and clips before their decoders, document by
// document.
func TestTowersAreTransformers(t *testing.T) {
	t.Parallel()
	require.Greater(t, models(t, true, func(t *testing.T, g *golden) {
		ids, want, pixels := whole(floats(t, g.file, "ids")), floats(t, g.file, "logits"), floats(t, g.file, "pixels")
		width, all, cu := len(want)/len(ids), family.Images{}, g.borders()
		for _, p := range g.Images {
			all.Grids = append(all.Grids, family.Grid{T: p.Grid[0], H: p.Grid[1], W: p.Grid[2], Spans: p.Spans, Video: p.Video,
				Every: p.Every})
		}
		each := len(pixels) / max(1, all.Patches())
		for d := range cu[1:] {
			from, to := cu[d], cu[d+1]
			tokens := append([]int32(nil), ids[from:to]...)
			var own family.Images
			at := 0
			for _, x := range all.Grids {
				values := pixels[at : at+each*x.Patches()]
				if at += len(values); x.Spans[0][0] < from || x.Spans[0][0] >= to {
					continue
				}
				spans := x.Spans
				x.Spans = nil
				for _, s := range spans {
					x.Spans = append(x.Spans, [2]int32{s[0] - from, s[1] - from})
					for i := s[0] - from; i < s[1]-from; i++ {
						tokens[i] = -1 // it has no embedding of its own
					}
				}
				own.Grids, own.Values = append(own.Grids, x), append(own.Values, values...)
			}
			g.Reset()
			got, err := g.LogitsWith(tokens, own)
			require.NoError(t, err)
			near(t, want[width*int(from):width*int(to)], got)
		}
	}), 20)
}
