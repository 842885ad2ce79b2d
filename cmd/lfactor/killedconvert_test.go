package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestKilledConversion: a conversion that is killed when its journal has so many bytes goes on when it is
// repeated, and gives the bytes of one that was not; another one to the same destination is refused, and a
// source that has changed since is another one.
func TestKilledConversion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	infos := []checkpoint.Info{{Name: "a.weight", DType: checkpoint.BF16, Shape: []int{24 << 10, 1 << 10}},
		{Name: "b.weight", DType: checkpoint.F32, Shape: []int{6 << 10, 1 << 10}}}
	w, err := checkpoint.NewWriter(src, infos, 0)
	require.NoError(t, err)
	for i, info := range infos {
		n, err := checkpoint.ByteSize(info.DType, info.Shape)
		require.NoError(t, err)
		require.NoError(t, w.WriteTensor(info.Name, bytes.Repeat([]byte{byte(i + 1), 2, 3, 60}, int(n/4))))
	}
	require.NoError(t, w.Commit())
	require.NoError(t, os.WriteFile(filepath.Join(src, "config.json"), []byte(`{"model_type": "own"}`), 0o600))
	args := func(dst string) []string {
		return []string{"ckpt", "convert", "src", dst, "--no-probe", "--shard-size", "40MB", "--dtype", "f32"}
	}
	code, out := runIn(t, dir, nil, args("whole")...)
	require.Zero(t, code, out)
	journal := checkpoint.JournalPath(filepath.Join(dir, "dst"))
	killed := 0
	for goal := range 6 {
		c := exec.Command(built(t), args("dst")...)
		c.Dir = dir
		require.NoError(t, c.Start())
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		for over := false; !over; {
			select {
			case err := <-ended:
				require.NoError(t, err)
				over = true
			default:
				if info, err := os.Stat(journal); err == nil && info.Size() > int64(80+60*goal) {
					_ = c.Process.Kill() // it may have ended
					<-ended
					over = true
				}
			}
		}
		if _, err := os.Stat(journal); err != nil {
			break // it was faster
		}
		killed++
	}
	if killed > 0 {
		code, out = runIn(t, dir, nil, append(args("dst"), "--dtype", "bf16")...)
		require.Equal(t, 2, code, out)
		require.Contains(t, out, "was interrupted")
		code, out = runIn(t, dir, nil, args("dst")...)
		require.Zero(t, code, out)
	}
	for _, pattern := range []string{"*.safetensors", "*.json"} {
		paths, err := filepath.Glob(filepath.Join(dir, "whole", pattern))
		require.NoError(t, err)
		require.NotEmpty(t, paths)
		for _, path := range paths {
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join(dir, "dst", filepath.Base(path)))
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got), path)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestOverwrittenConversion: a conversion that takes the place of one with other files, which was interrupted, leaves
// none of that one's under temporary names.
func TestOverwrittenConversion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := checkpoint.NewWriter(filepath.Join(dir, "src"), []checkpoint.Info{{Name: "a.weight",
		DType: checkpoint.F32, Shape: []int{4}}}, 0)
	require.NoError(t, err)
	require.NoError(t, w.WriteTensor("a.weight", make([]byte, 16)))
	require.NoError(t, w.Commit())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "src", "config.json"), []byte(`{"model_type": "own"}`), 0o600))
	dst := filepath.Join(dir, "dst")
	require.NoError(t, os.MkdirAll(filepath.Join(dst, "below"), 0o700))
	require.NoError(t, os.WriteFile(checkpoint.JournalPath(dst), []byte("lfactor-conversion-1 another -\n"), 0o600))
	for _, name := range []string{"model-00001-of-00003.safetensors.partial", "below/x.distcp.partial"} {
		require.NoError(t, os.WriteFile(filepath.Join(dst, name), []byte("x"), 0o600))
	}
	args := []string{"ckpt", "convert", "src", "dst", "--no-probe", "--dtype", "bf16"}
	code, out := runIn(t, dir, nil, args...)
	require.Equal(t, 2, code, out)
	require.FileExists(t, filepath.Join(dst, "below", "x.distcp.partial"))
	code, out = runIn(t, dir, nil, append(args, "--overwrite")...)
	require.Zero(t, code, out)
	for _, pattern := range []string{"*.partial", "below/*"} {
		left, err := filepath.Glob(filepath.Join(dst, pattern))
		require.NoError(t, err)
		require.Empty(t, left)
	}
}
