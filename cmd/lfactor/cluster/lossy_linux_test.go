package cluster_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var lossyPercent = flag.Int("lose", 20, "how many of a hundred packets TestClusterLossy loses")

// TestClusterLossy: a network that loses a fifth of all packets, on all hosts, ends no process and no edge: the run goes
// on with a quarter of its steps at least, and nobody is said to be lost. Where steps are long and messages large it is a
// fifth: two cores make 26 MB/s of packets each way beside training.
func TestClusterLossy(t *testing.T) {
	longOnly(t, "a network that loses packets: TestPatience of topology/machine has how long an edge waits, TestLossy "+
		"of actors/cluster/edge what goes by UDP")
	t.Run("short", func(t *testing.T) { lossy(t, 0.25, 15*time.Second) })
	t.Run("long", func(t *testing.T) {
		lossy(t, 0.2, 30*time.Second, "plan.pp=1", "plan.dp=2", "data.seq_len=256", "model.overrides.hidden_size=256",
			"model.overrides.intermediate_size=1024", "model.overrides.max_position_embeddings=256",
			"model.overrides.head_dim=64")
	})
}

// lossy measures for so long each how many steps a run makes undisturbed, at first, and then: at least a share.
func lossy(t *testing.T, share float64, each time.Duration, with ...string) {
	dir := tinyRun(t)
	r := onRig(t, dir, 3)
	r.on(0, slices.Concat([]string{"train", "run.yaml", "--cluster", "rig", "--detach", "plan.procs=2",
		"checkpoint.interval=0", "train.steps=1000000", "schedule.decay_steps=1000"}, with)...)
	steps := func() int {
		text, _ := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
		return bytes.Count(text, []byte("\n"))
	}
	require.Eventually(t, func() bool { return steps() > 3 }, 2*time.Minute, 10*time.Millisecond)
	in := func(what string) float64 {
		from, last, at, longest := steps(), steps(), time.Now(), time.Duration(0)
		for end := time.Now().Add(each); time.Now().Before(end); {
			<-time.After(20 * time.Millisecond)
			if now := steps(); now != last {
				longest, last, at = max(longest, time.Since(at)), now, time.Now()
			}
		}
		rate := float64(steps()-from) / each.Seconds()
		t.Logf("%s: %.2f steps a second, the longest wait %v, load %s", what, rate, max(longest, time.Since(at)), load())
		return rate
	}
	before := r.on(0, "events")
	quiet := in("undisturbed")
	for _, h := range r.Hosts {
		h.Lose(*lossyPercent)
	}
	in("lossy, at first")
	rate := in("then")
	t.Logf("%.0f %% of the undisturbed throughput", 100*rate/quiet)
	for _, h := range r.Hosts {
		h.Lose(0)
	}
	in("nothing lost any more")
	events, out := r.on(0, "events")[len(before):], r.on(0, "logs", "1")
	t.Log(events, out)
	require.NotContains(t, events, "killed")
	require.NotContains(t, events, "is lost")
	require.NotContains(t, out, "a connection broke")
	require.Positive(t, rate)
	if !busy() { // KCP costs processors more than TCP does
		require.GreaterOrEqual(t, rate, share*quiet)
	}
	r.on(0, "stop", "1", "--now")
}
