package trained

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFolderKeeps: what was put is got again to the bit, an empty list as none; another key gets nothing;
// and a file that was cut off, is another key's or no Arrow file at all is an error that names it.
func TestFolderKeeps(t *testing.T) {
	f, err := OpenFolder(filepath.Join(t.TempDir(), "new", "store"))
	require.NoError(t, err)
	require.NoError(t, f.Put("a", []float32{1, -2.5, 3e-40}, nil))
	got, err := f.Get("a")
	require.NoError(t, err)
	require.Equal(t, [][]float32{{1, -2.5, 3e-40}, nil}, got)
	got, err = f.Get("b")
	require.NoError(t, err)
	require.Nil(t, got)

	whole, err := os.ReadFile(f.path("a"))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(f.path("b")), 0o755))
	require.NoError(t, os.WriteFile(f.path("b"), whole, 0o644))
	_, err = f.Get("b")
	require.ErrorContains(t, err, "another key")
	for _, n := range []int{0, 8, len(whole) / 2, len(whole) - 1} {
		require.NoError(t, os.WriteFile(f.path("a"), whole[:n], 0o644))
		_, err = f.Get("a")
		require.ErrorContains(t, err, f.path("a"), "cut off at %d", n)
	}
	require.NoError(t, f.Put("a", []float32{4}))
	got, err = f.Get("a")
	require.NoError(t, err)
	require.Equal(t, [][]float32{{4}}, got)
}

// FuzzKept: no bytes of a store's file crash a reader.
func FuzzKept(f *testing.F) {
	raw, err := encodeKept("k", [][]float32{{1, 2}, nil})
	require.NoError(f, err)
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, _ = decodeKept(raw, "k") // an error is an answer
	})
}

// TestFolderPrint: weights in torch's file count as those in safetensors do; a folder without any has none.
func TestFolderPrint(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600))
	require.ErrorContains(t, HasWeights(dir), "model.safetensors")
	weights, err := os.ReadFile("../checkpoint/torch/testdata/parameters.pt")
	require.NoError(t, err)
	prints := map[string]bool{}
	for i := range 3 {
		weights[len(weights)/2] += byte(i)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "pytorch_model.bin"), weights, 0o600))
		print, err := FolderPrint(dir)
		require.NoError(t, err)
		prints[print] = true
	}
	require.Len(t, prints, 3)
}
