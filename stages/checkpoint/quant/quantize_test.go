package quant

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// quantSource is a directory of matrices of a type: whole blocks, short ones, zeros, and a norm.
func quantSource(t *testing.T, d checkpoint.DType) *checkpoint.Dir {
	dir := t.TempDir()
	shapes := map[string][]int{"a.weight": {256, 256}, "b.weight": {130, 320}, "zero.weight": {4, 64},
		"odd.weight": {5, 7}, "norm.weight": {64}, "head.weight": {8, 64}}
	var infos []checkpoint.Info
	for name, shape := range shapes {
		infos = append(infos, checkpoint.Info{Name: name, DType: d, Shape: shape})
	}
	w, err := checkpoint.NewWriter(dir, infos, 0)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	for _, i := range infos {
		x := make([]float32, checkpoint.BoxLen(checkpoint.Whole(i.Shape)))
		for k := range x {
			if i.Name != "zero.weight" {
				x[k] = float32(r.NormFloat64())
			}
		}
		raw := make([]byte, len(x)*d.Bits()/8)
		require.NoError(t, narrow(d, x, raw))
		require.NoError(t, w.WriteRanges(i.Name, checkpoint.Whole(i.Shape), raw))
	}
	require.NoError(t, w.Commit())
	src, err := checkpoint.OpenDir(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, src.Close()) })
	return src
}

// TestQuantize: what every form makes of a model is written, read again by its packing, and lies within
// half a step of what it was; read in parts it has the same bytes; what stays is named.
func TestQuantize(t *testing.T) {
	errors := map[string]float64{"fp8": 1.0 / 16, "int8": 1.0 / 254, "int4": 1.0 / 7, "nvfp4": 1.0 / 5}
	names, docs := Quantizers()
	require.Len(t, docs, len(names))
	for _, form := range names {
		for _, d := range []checkpoint.DType{checkpoint.F32, checkpoint.BF16} {
			src := quantSource(t, d)
			q, config, err := Quantize(src, form, func(name string) bool { return name != "head.weight" })
			require.NoError(t, err)
			require.Regexp(t, `[")*]head["$]`, string(config))
			if form == "int4" || form == "nvfp4" {
				require.Regexp(t, `[")*]odd["$]`, string(config), "its rows are no whole groups")
			}
			dir := filepath.Join(t.TempDir(), "out")
			w, err := checkpoint.NewWriter(dir, q.Tensors(), 0)
			require.NoError(t, err)
			for _, i := range q.Tensors() {
				raw := make([]byte, i.Bytes)
				require.NoError(t, q.ReadRanges(i.Name, checkpoint.Whole(i.Shape), raw))
				require.NoError(t, w.WriteRanges(i.Name, checkpoint.Whole(i.Shape), raw))
			}
			require.NoError(t, w.Commit())
			out, err := checkpoint.OpenDir(dir)
			require.NoError(t, err)
			plain, err := Dequantized(out, dir)
			require.NoError(t, err)
			for _, i := range src.Tensors() {
				want, err := (&finder{src: src}).floats(i, checkpoint.Whole(i.Shape)...)
				require.NoError(t, err)
				var got []float32
				for _, j := range plain.Tensors() {
					if j.Name == i.Name {
						require.Equal(t, i.Shape, j.Shape)
						got, err = (&finder{src: plain}).floats(j, checkpoint.Whole(i.Shape)...)
						require.NoError(t, err)
					}
				}
				if !QuantizedAt(plain, i.Name) {
					require.Equal(t, want, got, i.Name)
					continue
				}
				most := float64(magnitude(want))
				for k := range want {
					require.InDelta(t, want[k], got[k], errors[form]*most+1e-9, "%s %s", form, i.Name)
				}
			}
			for _, p := range q.Tensors() { // parts are the whole's
				if len(p.Shape) < 2 || p.Shape[0] < 3 {
					continue
				}
				all := make([]byte, p.Bytes)
				require.NoError(t, q.ReadRanges(p.Name, checkpoint.Whole(p.Shape), all))
				row := int(p.Bytes) / p.Shape[0]
				box := checkpoint.Whole(p.Shape)
				box[0] = [2]int{1, p.Shape[0] - 1}
				part := make([]byte, row*(p.Shape[0]-2))
				require.NoError(t, q.ReadRanges(p.Name, box, part))
				require.Equal(t, all[row:len(all)-row], part, p.Name)
			}
			require.NoError(t, out.Close())
			require.True(t, json.Valid(config))
		}
	}
	_, _, err := Quantize(quantSource(t, checkpoint.F32), "int5", func(string) bool { return true })
	require.ErrorContains(t, err, "[fp8 int4 int8 nvfp4] are")
	_, _, err = Quantize(quantSource(t, checkpoint.F32), "int8", func(string) bool { return false })
	require.ErrorContains(t, err, "no matrix")
}

// TestFusedScales: matrices that vLLM puts into one have one scale of the whole in NVFP4, since it takes the greatest for all; others have
// their own.
func TestFusedScales(t *testing.T) {
	src := quantSource(t, checkpoint.F32)
	names := []string{"l.0.self_attn.q_proj.weight", "l.0.self_attn.k_proj.weight", "l.1.self_attn.q_proj.weight"}
	var infos []checkpoint.Info
	of := map[string]string{}
	for _, i := range src.Tensors() {
		if len(i.Shape) == 2 && i.Shape[1]%nvfp4Group == 0 && len(infos) < len(names) {
			of[names[len(infos)]] = i.Name
			i.Name = names[len(infos)]
			infos = append(infos, i)
		}
	}
	require.Len(t, infos, len(names))
	q, _, err := Quantize(moved{src, infos, of}, "nvfp4", func(string) bool { return true })
	require.NoError(t, err)
	var scales []float32
	for _, name := range names {
		v, err := (&finder{src: q}).floats(checkpoint.Info{Name: name + globalTail, DType: checkpoint.F32, Shape: []int{1}}, [2]int{0, 1})
		require.NoError(t, err)
		scales = append(scales, v[0])
	}
	require.Equal(t, scales[0], scales[1])
	require.NotEqual(t, scales[0], scales[2])
}

// moved is a source whose tensors have other names.
type moved struct {
	checkpoint.Source
	infos []checkpoint.Info
	of    map[string]string
}

func (m moved) Tensors() []checkpoint.Info { return m.infos }

func (m moved) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	return m.Source.ReadRanges(m.of[name], ranges, dst)
}

// broken has a number that is not finite.
type broken struct{ checkpoint.Source }

func (b broken) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	err := b.Source.ReadRanges(name, ranges, dst)
	if strings.HasPrefix(name, "a.") {
		putWord(dst, 3, math.Float32bits(float32(math.Inf(1))))
	}
	return err
}

// TestQuantizeInfinite: numbers that few bits have not are refused by their tensor's name.
func TestQuantizeInfinite(t *testing.T) {
	q, _, err := Quantize(broken{quantSource(t, checkpoint.F32)}, "int8", func(string) bool { return true })
	require.NoError(t, err)
	require.ErrorContains(t, q.ReadRanges("a.weight_packed", [][2]int{{0, 256}, {0, 64}}, make([]byte, 256*256)),
		"a.weight: malformed: it has numbers that are not finite")
}

// TestToSmall: every number of FP8 and of four bits is itself, and numbers between go to the nearest, ties to even.
func TestToSmall(t *testing.T) {
	for b := range 256 {
		if b&127 != 127 {
			require.Equal(t, byte(b), toE4M3(e4m3[b]))
		}
	}
	for b := range 16 {
		require.Equal(t, byte(b), toE2M1(e2m1[b]))
	}
	require.EqualValues(t, 126, toE4M3(1e6))
	require.EqualValues(t, 0x38, toE4M3(1.0625), "between 1 and 1.125, the even one")
	require.EqualValues(t, 0x3a, toE4M3(1.1875))
	require.EqualValues(t, 4, toE2M1(2.5))
	require.EqualValues(t, 6, toE2M1(3.5))
	require.EqualValues(t, 7, toE2M1(100))
}
