package cluster_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClusterSlow: a rank that stands still for most of each step is named within ten steps, with its
// process's host and with what it shows by, in what the run writes and in the events of the cluster. While
// all ranks are treated alike, and the machine has more work than processors, no rank is said to compute
// slowly; that other work has the processors may be said.
func TestClusterSlow(t *testing.T) {
	longOnly(t, "a slow rank is named: TestSlowFor and TestSlowStood have when, and sim TestSlowRank")
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

// TestClusterSlowWay: the network of a host becomes slow while it trains. The way is named, with what it
// carries and what it did before, and with the host; no rank is said to be slow itself.
func TestClusterSlowWay(t *testing.T) {
	longOnly(t, "a slow network is named: TestWay of actors/host has when")
	dir := tinyRun(t)
	r := onRig(t, dir, 2)
	r.on(0, "train", "run.yaml", "--cluster", "rig", "--detach", "plan.procs=2", "checkpoint.interval=0",
		"train.steps=100000", "model.overrides.hidden_size=128", "model.overrides.head_dim=32",
		"data.seq_len=64",
		"train.micro_batch=8", "train.global_batch=32", "plan.dp=1", "train.buddy=off",
		"schedule.decay_steps=1000")
	steps := func() int {
		text, _ := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
		return bytes.Count(text, []byte("\n"))
	}
	require.Eventually(t, func() bool { return steps() > 20 }, 2*time.Minute, 10*time.Millisecond)
	<-time.After(4 * time.Second) // what is usual is learnt
	require.NotContains(t, r.on(0, "events"), "network")
	var events string
	named := false
	// where processes wait for processors most of the time, it takes more until they wait for the network
	for rates := []int64{40_000_000, 10_000_000, 2_500_000}; !named && len(rates) > 0; rates = rates[1:] {
		r.Hosts[1].Rate(rates[0])
		for until := time.Now().Add(time.Minute / 2); !named && time.Now().Before(until); {
			<-time.After(100 * time.Millisecond)
			events = r.on(0, "events")
			named = strings.Contains(events,
				"the network of host h2 is slow in job 1: the way from process 1 to process 0 carries")
		}
	}
	require.True(t, named, events)
	require.NotContains(t, events, "computes")
	// h1's way to h2 may be named beside it: what acknowledges its bytes goes the slow way
	t.Log(events)
	r.on(0, "stop", "1", "--now")
}
