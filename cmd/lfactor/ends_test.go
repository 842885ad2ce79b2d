package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
)

// TestBrokenPipe: when nobody reads the steps any more, as behind `| head`, the run saves its last committed
// step and ends.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	c := exec.Command(built(t), "train", "run.yaml", "train.steps=1000000", "checkpoint.interval=0", "-o",
		"jsonl")
	var errs strings.Builder
	c.Dir, c.Stderr = dir, &errs
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() }) // it may have ended
	lines := bufio.NewScanner(out)
	for range 3 {
		require.True(t, lines.Scan(), errs.String())
	}
	require.NoError(t, out.Close())
	_ = c.Wait() // its state tells
	require.Zero(t, c.ProcessState.ExitCode(), errs.String())
	require.FileExists(t, filepath.Join(dir, "ckpt", "latest"), errs.String())
}

// TestOtherUser: the state of another user's run is refused with the reason, and the run is none the worse.
func TestOtherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("skipped: becoming another user needs root")
	}
	dir := tinyRun(t)
	// the other user gets as far as the run's own folder
	for _, open := range []string{dir, filepath.Dir(dir), built(t)} {
		require.NoError(t, os.Chmod(open, 0o755))
	}
	r := startRun(t, dir, nil, "train", "run.yaml", "train.steps=1000000", "checkpoint.interval=0")
	r.until(t, "step 5/")
	c := exec.Command(built(t), "why", "run")
	c.Dir, c.SysProcAttr = dir, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	text, err := c.CombinedOutput()
	require.Error(t, err, string(text))
	require.Contains(t, string(text), "permission denied: the run is another user's; ask as that user")
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	code, last := r.end(t)
	require.Zero(t, code, r.all.String())
	require.Positive(t, last)
}

// TestStallIsSaid: a run whose device never comes back says by itself, and once, why no step comes; and a
// request to stop ends it.
func TestStallIsSaid(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	r := startRun(t, dir, []string{run.EnvFault + "=stuck=1@4"}, "train", "run.yaml", "log.stall=4",
		"train.steps=1000000", "checkpoint.interval=0")
	r.until(t, "! no step for ")
	said := r.all.String()[strings.LastIndex(r.all.String(), "! no step for "):]
	require.Regexp(t, `^! no step for [1-9]\d* s, because .*rank 1 `, said)
	began := time.Now()
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	code, last := r.end(t)
	require.Zero(t, code, r.all.String())
	require.EqualValues(t, 3, last)
	require.Contains(t, r.all.String(), "saved step 3: durable")
	require.Equal(t, 1, strings.Count(r.all.String(), "! no step for "), "it is said once")
	t.Logf("ended %v after SIGTERM", time.Since(began).Round(time.Millisecond))
}
