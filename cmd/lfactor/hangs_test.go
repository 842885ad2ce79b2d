package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
)

// TestHungWorker: a run whose device never comes back, in a process that still says that it lives, finds the root
// by itself, ends that process, and goes on with the one in its place to the state of a run that was left alone.
// On one host nobody would start the process that leads again: the run says so and goes on to wait.
func TestHungWorker(t *testing.T) {
	t.Parallel()
	args := []string{"train", "run.yaml", "plan.procs=2", "plan.dp=1", "train.steps=20", "log.stall=0.5"}
	quiet, dir := tinyRun(t), tinyRun(t)
	code, out := runIn(t, quiet, nil, args...)
	require.Equal(t, 0, code, out)
	code, out = runIn(t, dir, []string{run.EnvFault + "=stuck=1@9"}, args...)
	require.Equal(t, 0, code, out)
	require.Regexp(t, `! no step for \d+ s, because rank 1 .* is at work on 1B\d.*: process 1 is ended, and another`, out)
	require.Regexp(t, `rank 1 .* lost: process 1 \(pid \d+\) was ended \(no step for .*\) and was killed by signal 9`, out)
	require.Equal(t, stateOf(t, quiet, 20), stateOf(t, dir, 20))
	log, err := os.ReadFile(filepath.Join(dir, "run", "log.jsonl"))
	require.NoError(t, err)
	require.Contains(t, string(log), "process 1 is ended, and another takes its place")

	leads := tinyRun(t)
	r := startRun(t, leads, []string{run.EnvFault + "=stuck=0@9"}, args...)
	r.until(t, "! process 0 hangs, and nobody would start another in its place")
}
