package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestQuantizeCommand: a run's checkpoint and a directory are rounded to every form, with the perplexity
// before and after, and are sampled, trained from as they are, and written as numbers again.
func TestQuantizeCommand(t *testing.T) {
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
	names, _ := checkpoint.Quantizers()
	for i, form := range names {
		from := []string{"ckpt", "hf"}[i%2]
		do(0, "ckpt", "convert", from, form, "--quantize", form)
		do(0, "sample", form, "--prompt", "the", "--greedy", "--max", "3")
		do(0, "ckpt", "convert", form, form+"-whole", "--dtype", "f32")
		require.Contains(t, do(1, "ckpt", "diff", "hf", form+"-whole"), "elements differ")
	}
	require.Regexp(t, `perplexity \d+\.\d+ before, \d+\.\d+ after`,
		do(0, "ckpt", "convert", "hf", "told", "--quantize", "int8", "--perplexity", "text/*.txt"))
	narrow, err := filepath.Abs(filepath.Join("..", "..", "actors", "host", "testdata", "deepseek-v3-mtp"))
	require.NoError(t, err)
	require.Contains(t, do(1, "ckpt", "convert", narrow, "y", "--quantize", "int4"),
		"error: no matrix can be kept as int4")
	require.Contains(t, do(0, "ckpt", "convert", narrow, "z", "--dtype", "bf16"),
		"logits of a probe differ by at most")
	do(2, "ckpt", "convert", "hf", "x", "--quantize", "int5")
	do(2, "ckpt", "convert", "hf", "x.gguf", "--quantize", "int8")
	do(2, "ckpt", "convert", "hf", "x", "--perplexity", "run.yaml")
}
