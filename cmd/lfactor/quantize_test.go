package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint/quant"
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
	names, _ := quant.Quantizers()
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

// TestCalibrateCommand: a directory is rounded by what a text makes it read, in the layouts of GPTQ and AWQ, which
// are sampled, trained on, and written as numbers; what has no text, no such way or other groups is refused.
func TestCalibrateCommand(t *testing.T) {
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
	text, err := filepath.Glob(filepath.Join(dir, "text", "*"))
	require.NoError(t, err)
	for _, form := range []string{"gptq", "awq"} {
		from := map[string]string{"gptq": "ckpt", "awq": "hf"}[form]
		out := do(0, "ckpt", "convert", from, form, "--quantize", form, "--calibrate", text[0],
			"--calibrate-tokens", "256", "--perplexity", text[0])
		require.Regexp(t, form+`: \d+ matrices in groups of \d+ columns, by 256 tokens`, out)
		require.Regexp(t, `perplexity \d+\.\d+ before, \d+\.\d+ after`, out)
		require.Contains(t, out, "logits of a probe differ by at most")
		do(0, "sample", form, "--prompt", "the", "--greedy", "--max", "3")
		do(0, "ckpt", "convert", form, form+"-whole", "--dtype", "f32")
		require.Contains(t, do(1, "ckpt", "diff", "hf", form+"-whole"), "elements differ")
		require.FileExists(t, filepath.Join(dir, form, "model.safetensors"))
	}
	do(0, "ckpt", "convert", "hf", "ordered", "--quantize", "gptq", "--act-order", "--calibrate", text[0],
		"--calibrate-tokens", "256")
	config, err := os.ReadFile(filepath.Join(dir, "ordered", "config.json"))
	require.NoError(t, err)
	require.Regexp(t, `"desc_act": *true`, string(config))
	do(0, "ckpt", "convert", "ordered", "ordered-whole", "--dtype", "f32")
	require.Contains(t, do(1, "ckpt", "diff", "gptq-whole", "ordered-whole"), "elements differ")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "short.txt"), []byte("a"), 0o644))
	for _, c := range []struct {
		code      int
		args, why string
	}{{2, "--quantize gptq", "name one by --calibrate"}, {2, "--calibrate run.yaml", "are for --quantize"},
		{2, "--quantize int8 --group-size 32", "are for --quantize awq and gptq"},
		{2, "--quantize awq --calibrate run.yaml --act-order", "--act-order is for --quantize gptq"},
		{2, "--act-order", "--act-order is for --quantize gptq"},
		{2, "--quantize awq --calibrate run.yaml --group-size 48", "want 8, 16"},
		{2, "--quantize awq --calibrate run.yaml --calibrate-tokens 3", "want 16 or more"},
		{2, "--quantize gptq --calibrate short.txt", "no 16 tokens"},
		{1, "--quantize gptq --calibrate none.txt", "none.txt"}} {
		require.Contains(t, do(c.code, append([]string{"ckpt", "convert", "hf", "x"},
			strings.Fields(c.args)...)...), c.why)
		require.NoDirExists(t, filepath.Join(dir, "x"))
	}
}
