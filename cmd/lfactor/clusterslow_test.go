package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClusterSlow: a rank that stands still for most of each step is named within ten steps, with its
// process's host and with what it shows by, in what the run writes and in the events of the cluster. While
// all ranks are treated alike, and the machine has more work than processors, no rank is said to compute
// slowly; that other work has the processors may be said.
func TestClusterSlow(t *testing.T) {
	const from = 25
	dir := tinyRun(t)
	env := append(clusterHome(t, dir, "test"), fmt.Sprintf("LFACTOR_FAULT=slow=2@%d", from))
	code, out := runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", "test")
	require.Zero(t, code, out)
	for range 3 { // work that has nothing to do with the run
		load := exec.Command("sh", "-c", "while :; do :; done")
		require.NoError(t, load.Start())
		defer func() { _ = load.Process.Kill(); _ = load.Wait() }() // its end is this
	}
	code, out = runIn(t, dir, env, "train", "run.yaml", "--cluster", "test", "plan.procs=2",
		"checkpoint.interval=0",
		"train.buddy=off", fmt.Sprint("train.steps=", from+12))
	require.Zero(t, code, out)
	named := 0
	for _, e := range eventsOf(t, dir, env) {
		if e.Kind != "slow" || strings.Contains(e.Text, "which other work on its host has") {
			continue
		}
		named++
		require.Equal(t, "h2", e.Host)
		require.Contains(t, e.Text, "rank 2 (pp 1 dp 0 tp 0) in process 1 computes")
		require.Contains(t, e.Text, "and waits for none: it is stopped now and then, or has a quota")
		t.Log(e.Text)
	}
	require.Equal(t, 1, named, out)
	before, _, ok := strings.Cut(out, "! slow: rank 2 (pp 1 dp 0 tp 0) in process 1 computes")
	require.True(t, ok, out)
	require.LessOrEqual(t, strings.Count(before, "\nstep "), from+10)
}
