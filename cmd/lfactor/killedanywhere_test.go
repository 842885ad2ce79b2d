package main

import (
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestConversionKilledAnywhere: a conversion that is killed at a random moment, again and again, ends well when it is repeated,
// with the files of one that was left alone.
func TestConversionKilledAnywhere(t *testing.T) {
	kills := clitest.Sample(t, 2, make([]int, 30))
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", "train.steps=2", "model.overrides.hidden_size=256",
		"model.overrides.num_hidden_layers=6")
	require.Zero(t, code, out)
	code, out = runIn(t, dir, nil, "ckpt", "convert", "ckpt", "hf")
	require.Zero(t, code, out)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, args := range clitest.Sample(t, 1, [][]string{{"hf", "dst", "--quantize", "int8"}, {"ckpt", "dst", "--quantize", "int8"}, {"hf", "dst.gguf"},
		{"hf", "dst", "--dtype", "bf16"}, {"ckpt", "dst"}, {"hf", "dst", "--to", "lfactor"}, {"hf", "dst", "--to", "megatron"},
		{"hf", "dst", "--to", "torch"}}) {
		args = append([]string{"ckpt", "convert"}, args...)
		dst := filepath.Join(dir, args[3])
		began := time.Now()
		code, out := runIn(t, dir, nil, args...)
		require.Zero(t, code, out)
		usual, want := time.Since(began), filesOf(t, dst)
		require.NoError(t, os.RemoveAll(dst))
		ended := 0
		for range kills {
			c := exec.Command(built(t), args...)
			c.Dir = dir
			require.NoError(t, c.Start())
			timer := time.AfterFunc(time.Duration(rng.Float64()*float64(usual)), func() { _ = c.Process.Kill() }) // it may have ended
			if c.Wait() == nil {
				ended++
				require.NoError(t, os.RemoveAll(dst))
			}
			timer.Stop()
			if rng.IntN(3) > 0 {
				continue // the next one is killed too
			}
			repeated(t, dir, want, args)
		}
		repeated(t, dir, want, args)
		left, err := filepath.Glob(filepath.Join(dir, ".*"))
		require.NoError(t, err)
		require.Empty(t, left)
		t.Logf("%v: %d kills, %d came too late", args[2:], len(kills), ended)
	}
}

// repeated repeats a conversion that was killed, and takes away what it gives.
func repeated(t *testing.T, dir string, want map[string]string, args []string) {
	t.Helper()
	dst := filepath.Join(dir, args[3])
	if code, out := runIn(t, dir, nil, args...); code != 0 { // the kill may have come when all was done
		require.Equal(t, 2, code, "%v: %s", args, out)
		require.Regexp(t, "is not empty|exists", out, args)
	}
	got := filesOf(t, dst)
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)), "%v", args)
	for name, text := range want {
		require.True(t, text == got[name], "%v: %s: %.2048q, want %.2048q", args, name, got[name], text)
	}
	require.NoError(t, os.RemoveAll(dst))
}

// filesOf are the files below a path, by their names.
func filesOf(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	}))
	return all
}
