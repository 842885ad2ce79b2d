package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGGUF: a run's checkpoint becomes a GGUF file, which samples, verifies and compares as the directory
// of Hugging Face does, and comes back as one; what cannot be asked for is refused, and a damaged file
// named.
func TestGGUF(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	trained(t, dir)
	do := func(want int, args ...string) string {
		t.Helper()
		code, out := runIn(t, dir, nil, args...)
		require.Equal(t, want, code, out)
		return out
	}
	do(0, "ckpt", "convert", "ckpt", "hf")
	do(0, "ckpt", "convert", "ckpt", "x.gguf")
	do(0, "ckpt", "convert", "hf", "y.gguf")
	for _, pair := range [][2]string{{"hf", "x.gguf"}, {"x.gguf", "y.gguf"}} {
		require.Contains(t, do(0, "ckpt", "diff", pair[0], pair[1]), "equal")
	}
	do(0, "ckpt", "verify", "x.gguf")
	say := func(model string) string {
		return do(0, "sample", model, "--prompt", "the cat", "--greedy", "--max", "12")
	}
	require.Equal(t, say("hf"), say("x.gguf"))
	do(0, "ckpt", "convert", "x.gguf", "back")
	require.Contains(t, do(0, "ckpt", "diff", "hf", "back"), "equal")
	require.Equal(t, say("hf"), say("back"))

	do(2, "ckpt", "convert", "hf", "x.gguf")
	do(2, "ckpt", "convert", "hf", "z.gguf", "--dtype", "q9")
	do(2, "ckpt", "convert", "ckpt", "other", "--dtype", "f16")
	do(2, "ckpt", "convert", "x.gguf", "z.gguf")
	do(2, "ckpt", "convert", "hf", "z", "--to", "onnx")
	b, err := os.ReadFile(filepath.Join(dir, "x.gguf"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cut.gguf"), b[:len(b)/2], 0o600))
	require.Contains(t, do(6, "ckpt", "convert", "cut.gguf", "cut"), "truncated")
	require.NoDirExists(t, filepath.Join(dir, "cut"))
}
