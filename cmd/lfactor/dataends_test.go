package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
)

// TestBenchInterrupted: Ctrl-C ends a measurement as it ends everything else, with exit code 130, whether it has
// begun or not.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeShard(t, filepath.Join(dir, "s.tar"), "a", "b", "c")
	for _, after := range []time.Duration{0, 100 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		defer cancel()
		c := root()
		c.SetOut(io.Discard)
		c.SetArgs([]string{"data", "bench", filepath.Join(dir, "s.tar"), "--samples", "1000000000000"})
		require.Equal(t, exit.Interrupted, cli.ExitCode(c.ExecuteContext(ctx)))
	}
}

// TestLintAbsolute: images named by absolute paths are found, however the path of the data is written.
func TestLintAbsolute(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "img"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "img", "a.jpg"), []byte("x"), 0o600))
	line, err := json.Marshal(map[string]any{"images": []string{filepath.Join(dir, "img", "a.jpg")},
		"messages": []map[string]string{{"role": "user", "content": "<image>q"},
			{"role": "assistant", "content": "a"}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.jsonl"), line, 0o600))
	for _, path := range []string{"a.jsonl", "./a.jsonl", filepath.Join(dir, "a.jsonl")} {
		code, out := runIn(t, dir, nil, "data", "lint", path, "--media")
		require.Zero(t, code, "%s: %s", path, out)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.jsonl"),
		[]byte(strings.Replace(string(line), "/img/a.jpg", "/../img/a.jpg", 1)), 0o600))
	code, out := runIn(t, dir, nil, "data", "lint", "a.jsonl", "--media")
	require.Equal(t, exit.Data, code)
	require.Contains(t, out, "leads out of --image_dir")
}

// TestEmptyCheckpoint: a folder that holds nothing is said to, and no file of it is said to be missing.
func TestEmptyCheckpoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range [][]string{{"sample", dir, "--prompt", "x"}, {"ckpt", "convert", dir, filepath.Join(t.TempDir(), "out")}} {
		code, out := runIn(t, dir, nil, args...)
		require.Equal(t, exit.Corrupt, code, out)
		require.Contains(t, out, "there is no checkpoint and no Hugging Face directory here", "%v", args)
	}
}
