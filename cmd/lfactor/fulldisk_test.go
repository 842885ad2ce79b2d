package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/exit"
)

// TestFullStdout: a command whose data cannot be written, as on a disk that is full, fails and says so, whatever form
// it was to have.
func TestFullStdout(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	for _, args := range []string{"plan run.yaml", "plan run.yaml -o json", "sim run.yaml", "config models",
		"config models -o jsonl", "config check run.yaml", "train run.yaml -q -o jsonl train.steps=2", "train run.yaml train.steps=3", "version", "--help"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip("there is no /dev/full")
		}
		c := exec.Command(built(t), strings.Fields(args)...)
		var said strings.Builder
		c.Dir, c.Stdout, c.Stderr = dir, full, &said
		err = c.Run()
		require.NoError(t, full.Close())
		var failed *exec.ExitError
		require.ErrorAs(t, err, &failed, args)
		require.Equal(t, exit.Failed, failed.ExitCode(), "%s: %s", args, &said)
		require.Contains(t, said.String(), "no space left on device", args)
	}
}

// TestGoneReader: commands whose reader has gone, as head goes when it has enough, end well and say nothing.
func TestGoneReader(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	for _, args := range []string{"plan run.yaml", "plan run.yaml -o json", "sim run.yaml", "config models",
		"config models -o jsonl", "config check run.yaml", "version", "--help"} {
		read, write, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, read.Close())
		c := exec.Command(built(t), strings.Fields(args)...)
		var said strings.Builder
		c.Dir, c.Stdout, c.Stderr = dir, write, &said
		require.NoError(t, c.Run(), "%s: %s", args, &said)
		require.NoError(t, write.Close())
		require.Empty(t, said.String(), args)
	}
}
