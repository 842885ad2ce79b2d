package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestGGUF: a run's checkpoint becomes a GGUF file, which samples, verifies and compares as the directory of Hugging
// Face does, and comes back as one; what cannot be asked for is refused, and a damaged file named.
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

	trainsFrom(t, dir, "hf", "x.gguf")
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

// trainsFrom: a run that begins with a GGUF file has the losses of one that begins with its directory, goes on
// from its checkpoint, and is exported with the file's tokenizer.
func trainsFrom(t *testing.T, dir string, models ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "run.yaml"))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "data:")
	rest = strings.Replace(rest, ", tokenizer: tok", "", 1)
	env := []string{"XDG_CACHE_HOME=" + filepath.Join(dir, "cache")}
	var all [][]float64
	for i, model := range models {
		name := fmt.Sprint("from", i)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".yaml"),
			[]byte("model: {path: "+model+"}\ndata:"+rest), 0o644))
		args := []string{"train", name + ".yaml", "-q", "checkpoint.dir=" + name, "log.dir=" + name + "/run",
			"schedule.kind=constant"}
		for _, steps := range []string{"2", "4"} {
			code, out := runIn(t, dir, env, append(args, "train.steps="+steps)...)
			require.Zero(t, code, out)
		}
		var losses []float64
		for _, m := range clitest.Metrics(t, filepath.Join(dir, name)) {
			losses = append(losses, m.Loss)
		}
		all = append(all, losses)
		code, out := runIn(t, dir, env, "ckpt", "convert", name, name+"-out")
		require.Zero(t, code, out)
		require.FileExists(t, filepath.Join(dir, name+"-out", "tokenizer.json"))
	}
	require.Len(t, all[0], 4)
	require.Equal(t, all[0], all[1])
}
