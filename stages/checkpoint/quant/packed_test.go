package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// packedFiles are the golden data of bench/golden/quantized.py, and what a config.json says beside them.
var packedFiles = map[string]string{
	"packed_gptq1":        `{"quantization_config": {"quant_method": "gptq", "checkpoint_format": "gptq"}}`,
	"packed_gptq2":        `{"quantization_config": {"quant_method": "gptq", "checkpoint_format": "gptq_v2"}}`,
	"packed_awq":          `{"quantization_config": {"quant_method": "awq", "version": "gemm"}}`,
	"packed_bitsandbytes": "", "packed_compressed": "{}",
}

// openPacked opens golden data as the directory of a model that has it; wants are what libraries made of it.
func openPacked(t *testing.T, name string) (src checkpoint.Source, wants *checkpoint.File) {
	dir := t.TempDir()
	if packedFiles[name] != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(packedFiles[name]), 0o644))
	}
	f, err := checkpoint.OpenFile(filepath.Join("testdata", name+".safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	var infos []checkpoint.Info
	for _, i := range f.Tensors() {
		if !strings.HasPrefix(i.Name, "want.") {
			infos = append(infos, i)
		}
	}
	src, err = Dequantized(renamed{f, infos}, dir)
	require.NoError(t, err)
	return src, f
}

// TestPacked: every form of few bits, whole and in any part, is what its library makes of it, rounded to the
// type that the library computes in.
func TestPacked(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name := range packedFiles {
		src, wants := openPacked(t, name)
		seen := 0
		for _, want := range wants.Tensors() {
			base, ok := strings.CutPrefix(want.Name, "want.")
			if !ok {
				continue
			}
			seen++
			require.True(t, QuantizedAt(src, base), "%s: %s", name, base)
			for i := range 100 {
				box := checkpoint.Whole(want.Shape)
				for a, n := range want.Shape {
					if i > 0 {
						box[a] = [2]int{r.IntN(n), 1 + r.IntN(n)}
						slices.Sort(box[a][:])
					}
				}
				got, exp := make([]byte, 4*checkpoint.BoxLen(box)), make([]byte, checkpoint.BoxLen(box)*want.DType.Bits()/8)
				require.NoError(t, src.ReadRanges(base, box, got))
				require.NoError(t, wants.ReadRanges(want.Name, box, exp))
				if want.DType == checkpoint.F16 {
					got = asF16(got)
				}
				require.Equal(t, exp, got, "%s: %s %v", name, base, box)
			}
		}
		require.Len(t, src.Tensors(), seen, "%s: nothing else is shown: %v", name, src.Tensors())
	}
}

// asF16 rounds float32 to float16.
func asF16(raw []byte) []byte {
	out := make([]byte, 0, len(raw)/2)
	for i := 0; i < len(raw); i += 4 {
		x := math.Float32frombits(binary.LittleEndian.Uint32(raw[i:]))
		out = binary.LittleEndian.AppendUint16(out, tensor.F16Bits(x))
	}
	return out
}

// TestPackedShapes: a tensor of any form that is missing, or has another shape or type, is an error by a
// tensor's name, or another form; nothing panics.
func TestPackedShapes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for name := range packedFiles {
		f, err := checkpoint.OpenFile(filepath.Join("testdata", name+".safetensors"))
		require.NoError(t, err)
		for range 400 {
			var infos []checkpoint.Info
			for _, i := range f.Tensors() {
				if !strings.HasPrefix(i.Name, "want.") {
					i.Shape = slices.Clone(i.Shape)
					infos = append(infos, i)
				}
			}
			at := r.IntN(len(infos))
			switch kind := r.IntN(3); {
			case kind == 0:
				infos = slices.Delete(infos, at, at+1)
			case kind == 1 && len(infos[at].Shape) > 0:
				infos[at].Shape[r.IntN(len(infos[at].Shape))] += 1 - 2*r.IntN(2)
			default:
				infos[at].DType = []checkpoint.DType{checkpoint.F32, checkpoint.F16, checkpoint.U8, checkpoint.I8, checkpoint.I32, checkpoint.F8E4M3}[r.IntN(6)]
			}
			src, err := Dequantized(guarded{renamed{f, infos}, f}, "f")
			if err != nil {
				var fault *checkpoint.Error
				require.ErrorAs(t, err, &fault)
				continue
			}
			for _, i := range src.Tensors() {
				if QuantizedAt(src, i.Name) {
					_ = src.ReadRanges(i.Name, checkpoint.Whole(i.Shape), make([]byte, i.Bytes)) // an error or numbers
				}
			}
		}
		require.NoError(t, f.Close())
	}
}

// guarded refuses boxes that a changed shape has and the file has not.
type guarded struct {
	renamed
	f *checkpoint.File
}

func (g guarded) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	for _, i := range g.f.Tensors() {
		if i.Name != name {
			continue
		}
		if len(ranges) != len(i.Shape) {
			return &checkpoint.Error{Tensor: name, Fault: checkpoint.Misshapen}
		}
		for a, r := range ranges {
			if r[1] > i.Shape[a] {
				return &checkpoint.Error{Tensor: name, Fault: checkpoint.Misshapen}
			}
		}
		if len(dst) != checkpoint.BoxLen(ranges)*i.DType.Bits()/8 {
			return &checkpoint.Error{Tensor: name, Fault: checkpoint.Misshapen}
		}
	}
	return g.renamed.ReadRanges(name, ranges, dst)
}

// TestPackedInMemory: a matrix of any form whose groups are neighbouring columns lies in memory with the
// numbers that it has in the file, but for bitsandbytes' integers, which are there multiplied twice.
func TestPackedInMemory(t *testing.T) {
	forms := map[string]int{}
	for name := range packedFiles {
		src, _ := openPacked(t, name)
		for _, i := range src.Tensors() {
			g := GridAt(src, i.Name)
			require.NotNil(t, g)
			p := g.Packing()
			if p.Form == 0 {
				require.Contains(t, []string{"order.weight", "odd.weight"}, i.Name, name)
				continue
			}
			forms[kernels.PackedForms[p.Form].Name]++
			_, words := p.Words(g.Cols)
			rows := [2]int{g.Rows / 3, g.Rows}
			raw, want := make([]byte, 4*words*(rows[1]-rows[0])), make([]byte, 4*g.Cols*(rows[1]-rows[0]))
			require.NoError(t, g.Pack(rows, raw))
			require.NoError(t, src.ReadRanges(i.Name, [][2]int{rows, {0, g.Cols}}, want))
			got := make([]float32, g.Cols)
			for r := range rows[1] - rows[0] {
				p.Decode(got, raw[4*words*r:], g.Cols, 0)
				for c, x := range got {
					w := math.Float32frombits(binary.LittleEndian.Uint32(want[4*(r*g.Cols+c):]))
					if i.Name == "int8.weight" && g.Times != 0 {
						require.InDelta(t, w, x, 3e-7*math.Abs(float64(w)))
						continue
					}
					require.Equal(t, w, x, "%s %s %d %d", name, i.Name, r, c)
				}
			}
		}
	}
	require.Equal(t, map[string]int{"nf4": 2, "fp4": 1, "int4": 12, "int8": 6, "fp8": 2, "e2m1": 1}, forms)
}
