package quant

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestDequantized: whole matrices and any part of one have the bits that PyTorch and compressed-tensors make
// of the same file; what is quantized is shown as matrices of its names, and everything else as it is.
func TestDequantized(t *testing.T) {
	f, err := checkpoint.OpenFile("testdata/quantized.safetensors")
	require.NoError(t, err)
	defer f.Close()
	src, err := Dequantized(f, "quantized")
	require.NoError(t, err)
	var names []string
	shapes := map[string][]int{}
	for _, i := range src.Tensors() {
		if i.Name[:4] != "want" {
			names = append(names, i.Name)
			shapes[i.Name] = i.Shape
		}
	}
	require.Equal(t, []string{"long.weight", "norm.weight", "packed.weight", "short.weight", "whole.weight",
		"wide.weight"}, names)
	require.True(t, QuantizedAt(src, "long.weight"))
	require.False(t, QuantizedAt(src, "norm.weight"))
	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range names {
		if name == "norm.weight" {
			got, want := make([]byte, 28), make([]byte, 28)
			require.NoError(t, src.ReadRanges(name, [][2]int{{0, 7}}, got))
			require.NoError(t, f.ReadRanges(name, [][2]int{{0, 7}}, want))
			require.Equal(t, want, got)
			continue
		}
		n, k := shapes[name][0], shapes[name][1]
		for i := range 200 {
			box := [][2]int{{r.IntN(n), 1 + r.IntN(n)}, {r.IntN(k), 1 + r.IntN(k)}}
			for a := range box {
				slices.Sort(box[a][:])
			}
			if i == 0 {
				box = checkpoint.Whole(shapes[name])
			}
			size := 4 * (box[0][1] - box[0][0]) * (box[1][1] - box[1][0])
			got, want := make([]byte, size), make([]byte, size)
			require.NoError(t, src.ReadRanges(name, box, got))
			require.NoError(t, f.ReadRanges("want."+name, box, want))
			require.Equal(t, want, got, "%s %v", name, box)
		}
	}
	plain, err := checkpoint.OpenFile("../testdata/types.safetensors")
	require.NoError(t, err)
	defer plain.Close()
	same, err := Dequantized(plain, "types")
	require.NoError(t, err)
	require.True(t, same == checkpoint.Source(plain), "a source without quantized tensors is given back")
}

// TestMXFP4: experts in four-bit numbers, whole or any part, have the bits that transformers makes of them.
func TestMXFP4(t *testing.T) {
	f, err := checkpoint.OpenFile("testdata/mxfp4.safetensors")
	require.NoError(t, err)
	defer f.Close()
	src, err := Dequantized(f, "mxfp4")
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	for name, shape := range map[string][]int{"gate_up_proj": {3, 64, 10}, "down_proj": {2, 96, 7}} {
		require.True(t, slices.ContainsFunc(src.Tensors(), func(i checkpoint.Info) bool {
			return i.Name == name && i.DType == checkpoint.F32 && slices.Equal(i.Shape, shape)
		}), name)
		for i := range 200 {
			box, size := checkpoint.Whole(shape), 4
			for a, n := range shape {
				if i > 0 {
					box[a] = [2]int{r.IntN(n), 1 + r.IntN(n)}
					slices.Sort(box[a][:])
				}
				size *= box[a][1] - box[a][0]
			}
			got, want := make([]byte, size), make([]byte, size)
			require.NoError(t, src.ReadRanges(name, box, got))
			require.NoError(t, f.ReadRanges("want."+name, box, want))
			require.Equal(t, want, got, "%s %v", name, box)
		}
	}
}

// TestPublishedForms: FP8 with scales of every type, block and place that transformers reads, matrices of all experts,
// and MX of compressed-tensors, whole or any part, have the bits that those libraries make of them; what says how
// activations are rounded is no weight.
func TestPublishedForms(t *testing.T) {
	f, err := checkpoint.OpenFile("testdata/published.safetensors")
	require.NoError(t, err)
	defer f.Close()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"quantization_config":
		{"quant_method": "fp8", "weight_block_size": [32, 16]}}`), 0o644))
	src, err := Dequantized(f, dir)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	n := 0
	for _, info := range src.Tensors() {
		name, ok := strings.CutPrefix(info.Name, "want.")
		if !ok {
			require.True(t, QuantizedAt(src, info.Name), info.Name)
			continue
		}
		n++
		for i := range 60 {
			box, size := checkpoint.Whole(info.Shape), 4
			for a, n := range info.Shape {
				if i > 0 {
					box[a] = [2]int{r.IntN(n), 1 + r.IntN(n)}
					slices.Sort(box[a][:])
				}
				size *= box[a][1] - box[a][0]
			}
			got, want := make([]byte, size), make([]byte, size)
			require.NoError(t, src.ReadRanges(name, box, got))
			require.NoError(t, f.ReadRanges(info.Name, box, want))
			require.Equal(t, want, got, "%s %v", name, box)
		}
	}
	require.Equal(t, 31, n)
}

// renamed is a source whose tensors have other shapes or names.
type renamed struct {
	checkpoint.Source
	infos []checkpoint.Info
}

func (r renamed) Tensors() []checkpoint.Info { return r.infos }

// TestDequantizedRefused: scales that do not fit their matrix, and forms that cannot be read, are said by name.
func TestDequantizedRefused(t *testing.T) {
	fp8 := []checkpoint.Info{{Name: "a.weight", DType: checkpoint.F8E4M3, Shape: []int{200, 300}}, {Name: "a.weight_scale_inv",
		DType: checkpoint.F32, Shape: []int{2, 2}}}
	int4 := func(more ...checkpoint.Info) []checkpoint.Info {
		return append([]checkpoint.Info{{Name: "b.weight_packed", DType: checkpoint.I32, Shape: []int{4, 8}}}, more...)
	}
	for _, c := range []struct {
		infos []checkpoint.Info
		why   string
	}{
		{fp8,
			"a.weight_scale_inv: misshapen: F32 [2 2], want floating-point numbers or exponents for all of [200 300]"},
		{[]checkpoint.Info{{Name: "d.weight_packed", DType: checkpoint.U8, Shape: []int{8, 48}}, {Name: "d.weight_scale",
			DType: checkpoint.U8, Shape: []int{8, 2}}}, "d.weight_scale: misshapen: U8 [8 2], want an exponent for each 32"},
		{int4(), "b.weight_scale: misshapen"},
		{int4(checkpoint.Info{Name: "b.weight_scale", DType: checkpoint.BF16, Shape: []int{4, 5}}),
			"want a floating-point number for each group of columns of [4 64]"},
		{int4(checkpoint.Info{Name: "b.weight_scale", DType: checkpoint.BF16, Shape: []int{4, 4}},
			checkpoint.Info{Name: "b.weight_zero_point", DType: checkpoint.I32, Shape: []int{4}}),
			"b.weight_zero_point: misshapen: I32 [4], want I32 with a zero for each of [4 4]"},
		{[]checkpoint.Info{{Name: "c_blocks", DType: checkpoint.U8, Shape: []int{2, 3, 4, 16}}, {Name: "c_scales", DType: checkpoint.U8,
			Shape: []int{2, 3, 5}}}, "c_scales: misshapen: U8 [2 3 5], want U8 with an exponent"},
	} {
		_, err := Dequantized(renamed{infos: c.infos}, "f")
		require.ErrorContains(t, err, c.why)
	}
	require.True(t, math.IsNaN(float64(e4m3[0x7f])) && math.IsNaN(float64(e4m3[0xff])))
	require.Equal(t, []float32{448, -448, 0x1p-9, 1}, []float32{e4m3[0x7e], e4m3[0xfe], e4m3[1], e4m3[0x38]})
}
