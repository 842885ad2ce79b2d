package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRefusedAtOnce: what cannot have an effect, or cannot be written in the end, is one error with a remedy
// before any work.
func TestRefusedAtOnce(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	for want, args := range map[string][]string{
		"model: is a section of keys, not a key; set each by itself, as model.name=qwen/2.5-7b": {"plan",
			"run.yaml", "model={name: qwen/2.5-7b}"},
		"model.overrides: is a section of keys, not a key; set one of them: `lfactor config explain model.overrides` lists them": {"plan", "run.yaml",
			"model.overrides={}"},
		"--seed is for --upcycle, which makes a mixture": {"ckpt", "convert", "run", "out", "--seed", "3"},
		"--out=folder cannot be written: it is a directory; name another file": {"plan", "run.yaml",
			"--hosts", "1", "--out", "folder"},
		"--out=none/best.yaml cannot be written: directory none: no such file or directory; name another": {
			"plan", "run.yaml", "--max-length", "--out", "none/best.yaml"},
	} {
		code, out := runIn(t, dir, nil, args...)
		require.Equal(t, 2, code, out)
		require.Contains(t, out, want)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".lfactor-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
