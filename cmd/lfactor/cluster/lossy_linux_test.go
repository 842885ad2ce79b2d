package cluster_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClusterLossy: a network that loses a fifth of all packets, on all hosts, ends no process and no edge: the run goes
// on, slower, and nobody is said to be lost.
func TestClusterLossy(t *testing.T) {
	longOnly(t, "a network that loses packets: TestPatience of topology/machine has how long an edge waits")
	dir := tinyRun(t)
	r := onRig(t, dir, 3)
	r.on(0, "train", "run.yaml", "--cluster", "rig", "--detach", "plan.procs=2", "checkpoint.interval=0",
		"train.steps=1000000", "schedule.decay_steps=1000")
	steps := func() int {
		text, _ := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
		return bytes.Count(text, []byte("\n"))
	}
	require.Eventually(t, func() bool { return steps() > 20 }, 2*time.Minute, 10*time.Millisecond)
	in := func(d time.Duration) (n int, longest time.Duration) {
		from, last, at := steps(), steps(), time.Now()
		for end := time.Now().Add(d); time.Now().Before(end); {
			<-time.After(20 * time.Millisecond)
			if now := steps(); now != last {
				longest, last, at = max(longest, time.Since(at)), now, time.Now()
			}
		}
		return steps() - from, max(longest, time.Since(at))
	}
	before := r.on(0, "events")
	quiet, gap := in(10 * time.Second)
	t.Logf("undisturbed: %.1f steps a second, the longest wait %v", float64(quiet)/10, gap)
	for _, h := range r.Hosts {
		h.Lose(20)
	}
	lossy, gap := in(15 * time.Second)
	t.Logf("a fifth lost: %.1f steps a second, the longest wait %v", float64(lossy)/15, gap)
	for _, h := range r.Hosts {
		h.Lose(0)
	}
	events, out := r.on(0, "events")[len(before):], r.on(0, "logs", "1")
	t.Log(events)
	require.NotContains(t, events, "killed")
	require.NotContains(t, events, "is lost")
	require.NotContains(t, out, "a connection broke")
	require.Positive(t, lossy)
	r.on(0, "stop", "1", "--now")
}
