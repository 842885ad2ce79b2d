package cluster_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestClusterPrivateSamplers: hosts share no storage for checkpoints and logs, and the run draws its answers on
// two of them. The host of the process that trains is killed; the run goes on at another, from the checkpoint
// and with the log of answers that were copied there: weights, optimizer state and log are those of a run in
// one process that nobody disturbed.
func TestClusterPrivateSamplers(t *testing.T) {
	longOnly(t, "a run that draws on hosts that share no storage, of which one is killed: the tests of "+
		"actors/run/mirror have what is copied where")
	t.Parallel()
	const steps = 60
	dir := clitest.DrawnRun(t, steps)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q")
	require.Zero(t, code, out)
	want := stateOf(t, dir, steps)
	answers, err := os.ReadFile(dir + "/run/rollouts.jsonl")
	require.NoError(t, err)
	r := onRig(t, dir, 3)
	r.on(0, "cluster", "drain", "h1") // the head's host is to be the spare one
	r.onWith(0, clitest.Gated(t, dir, steps/2), "train", "run.yaml", "--cluster", "rig", "--detach",
		"rollout.samplers=2", "rollout.silence=20", "checkpoint.dir=/tmp/own/ckpt", "log.dir=/tmp/own/run")
	r.on(0, "cluster", "drain", "h1", "--back")
	leads := func() string {
		var jobs []head.Job
		require.NoError(t, json.Unmarshal([]byte(r.on(0, "ps", "-o", "json")), &jobs))
		return jobs[0].Procs[0].Host
	}
	require.Eventually(t, func() bool { return newestSaved(r.on(0, "logs", "--proc", "0")) > 5 },
		2*time.Minute, 10*time.Millisecond)
	first := leads()
	require.NotEqual(t, "h1", first)
	for _, h := range r.Hosts {
		if h.Name == first {
			h.Kill()
		}
	}
	clitest.Gate(t, dir, clitest.Open)
	out = r.on(0, "attach")
	require.Contains(t, out, "came from other hosts")
	last := leads()
	require.NotEqual(t, first, last)
	for _, h := range r.Hosts {
		if h.Name != last {
			continue
		}
		require.Equal(t, want, stateOf(t, h.Path("/tmp/own"), steps), out)
		again, err := os.ReadFile(h.Path("/tmp/own/run/rollouts.jsonl"))
		require.NoError(t, err)
		require.Equal(t, string(answers), string(again), out)
	}
	t.Log(fmt.Sprint(first, " led, then ", last, "\n", out))
}
