package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClusterPlaced: a job for two hosts of three leaves the one out whose links were measured to be slow.
func TestClusterPlaced(t *testing.T) {
	if !*long {
		t.Skip("three hosts whose links are measured: add -long; TestArrange and TestTalks have the rules")
	}
	dir := tinyRun(t)
	r := onRig(t, dir, 3)
	r.Hosts[1].Rate(300_000_000)
	train := []string{"train", "run.yaml", "--cluster", "rig", "plan.procs=2", "plan.dp=1", "train.steps=2",
		"-q",
		"--hosts", "2"}
	r.on(0, train...)
	require.Contains(t, r.on(0, "events"), "job 1 starts on [h1 h2]\n", "nothing is measured yet")
	r.on(0, "cluster", "check", "rig")
	r.on(0, append(train, "log.dir=run2", "checkpoint.dir=ckpt2")...)
	require.Regexp(t, `job 2 starts on \[(h1 h3|h3 h1)\]`, r.on(0, "events"))
}
