package checkpoint

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCast: a number beyond float16 is an error and no infinity, parts that stay in full are float32, and what is not
// finite is found in whatever box is read.
func TestCast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	w, err := newPlacedFile(OS, path, []Info{{Name: "gate.weight", DType: F32, Shape: []int{2}},
		{Name: "up.weight", DType: F32, Shape: []int{2}}})
	require.NoError(t, err)
	put := func(name string, x ...float32) {
		raw := make([]byte, 8)
		for i, v := range x {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
		}
		require.NoError(t, w.writeRanges(name, Whole([]int{2}), raw))
	}
	put("gate.weight", 1e-9, 70000)
	put("up.weight", float32(math.Inf(1)), 65519)
	require.NoError(t, w.finish())
	f, err := OpenFile(path + partial)
	require.NoError(t, err)
	defer f.Close()
	read := func(src Source, name string, from, to int) error {
		return src.ReadRanges(name, [][2]int{{from, to}}, make([]byte, 4*(to-from)))
	}
	half, err := Cast(f, "f16")
	require.NoError(t, err)
	require.ErrorContains(t, half.ReadRanges("gate.weight", Whole([]int{2}), make([]byte, 4)), "gate.weight: malformed: 70000 is too large for f16")
	require.NoError(t, half.ReadRanges("up.weight", [][2]int{{1, 2}}, make([]byte, 2))) // rounds to 65504
	require.NoError(t, half.ReadRanges("up.weight", [][2]int{{0, 1}}, make([]byte, 2))) // was infinite before
	require.ErrorContains(t, Finite(half).ReadRanges("up.weight", [][2]int{{0, 1}}, make([]byte, 2)), "not finite")
	full, err := Cast(f, "f16", "gate.weight")
	require.NoError(t, err)
	require.Equal(t, []DType{F32, F16}, []DType{full.Tensors()[0].DType, full.Tensors()[1].DType})
	require.NoError(t, read(full, "gate.weight", 0, 2))
	require.NoError(t, read(Finite(f), "up.weight", 1, 2))
	require.ErrorContains(t, read(Finite(f), "up.weight", 0, 2), "up.weight: malformed: it has a number that is not finite")
}

// TestPointer: what a clone without Git LFS has in place of weights is named.
func TestPointer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, os.WriteFile(path, []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"), 0o600))
	_, err := OpenFile(path)
	require.ErrorContains(t, err, "is a pointer of Git LFS")
}
