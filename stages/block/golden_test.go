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

// TestLayersAreTransformers: the layers of every decoder of texts, with weights of transformers, give its logits of packed
// documents. Both compute in float32, so that sums of at most 80 products in another order, through two or three
// layers, bound the difference.
func TestLayersAreTransformers(t *testing.T) {
	t.Parallel()
	const root = "../family/testdata"
	all, err := os.ReadDir(root)
	require.NoError(t, err)
	tried := 0
	for _, e := range all {
		dir := filepath.Join(root, e.Name())
		c, err := configs.ReadModel(dir)
		require.NoError(t, err)
		m, err := family.Build(c, 24)
		require.NoError(t, err)
		if m.Vision != nil {
			continue
		}
		tried++
		t.Run(e.Name(), func(t *testing.T) {
			t.Parallel()
			sameLogits(t, m, dir)
		})
	}
	require.Greater(t, tried, 60)
}

// sameLogits compares a model's with those that lie beside its weights.
func sameLogits(t *testing.T, m *family.Model, dir string) {
	weights, err := checkpoint.OpenFile(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	defer weights.Close()
	w, err := m.OpenWeights(weights, dir)
	require.NoError(t, err)
	g, err := sample.New(m, nil, tensor.F32, ref.New(), tensor.NewPool(dir, 0), func(p *grad.Param, r family.Region,
		dst []float32) error {
		found, err := w.Read(p, r, dst)
		require.True(t, found || err != nil, p.Name)
		return err
	})
	require.NoError(t, err)
	defer g.Close()
	golden, err := checkpoint.OpenFile(filepath.Join(dir, "golden.safetensors"))
	require.NoError(t, err)
	defer golden.Close()
	var said struct{ Documents [][]int32 }
	text, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &said))
	cu := []int32{0}
	for _, lengths := range said.Documents {
		for _, n := range lengths {
			cu = append(cu, cu[len(cu)-1]+n)
		}
	}
	got, err := g.AllLogits(whole(floats(t, golden, "ids")), whole(floats(t, golden, "positions")), cu)
	require.NoError(t, err)
	want := floats(t, golden, "logits")
	require.Len(t, got, len(want))
	d, n := 0.0, 0.0
	for i, x := range want {
		d += math.Pow(float64(got[i]-x), 2)
		n += math.Pow(float64(x), 2)
	}
	require.LessOrEqual(t, math.Sqrt(d/n), 1e-4)
}
