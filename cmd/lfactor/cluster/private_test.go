package cluster_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestClusterPrivate: hosts share no storage for checkpoints. The host that leads is killed, and the run
// resumes on the other and on a third that had nothing; then a worker of the resumed run is killed, and then
// the host of one, whose state comes from the checkpoint. Weights, optimizer state and ledger are those of a
// run that nobody disturbed.
func TestClusterPrivate(t *testing.T) {
	longOnly(t, "checkpoints on hosts that share no storage, with hosts that are killed: the tests of "+
		"actors/cluster/depot and actors/run have what is copied where")
	t.Parallel()
	const steps = 140
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", fmt.Sprint("train.steps=", steps))
	require.Zero(t, code, out)
	want := stateOf(t, dir, steps)
	r := onRig(t, dir, 3)
	r.on(0, "cluster", "drain", "h1") // the head's host is to be the spare one
	r.onWith(0, clitest.Gated(t, dir, 40), "train", "run.yaml", "--cluster", "rig", "--detach",
		"plan.procs=2", "train.buddy=off", "checkpoint.dir=/tmp/own/ckpt", "log.dir=/tmp/own/run",
		fmt.Sprint("train.steps=", steps))
	r.on(0, "cluster", "drain", "h1", "--back")
	durable := func(above int64) {
		t.Helper()
		require.Eventually(t, func() bool { return newestSaved(r.on(0, "logs", "--proc", "0")) > above },
			2*time.Minute, 10*time.Millisecond)
	}
	durable(3)
	logs := r.on(0, "logs", "--proc", "0")
	require.Contains(t, logs, "checkpoints are whole on h2; what is written there is copied to h3")
	for _, h := range r.Hosts[1:] {
		latest, err := os.ReadFile(h.Path("/tmp/own/ckpt/latest"))
		require.NoError(t, err, h.Name)
		require.Contains(t, string(latest), "step-", h.Name)
	}
	r.Hosts[1].Kill()
	at := newestSaved(r.on(0, "logs", "--proc", "0"))
	clitest.Gate(t, dir, 80)
	durable(at + 4)
	logs = r.on(0, "logs", "--proc", "0")
	require.Contains(t, logs, "came from other hosts")
	require.Contains(t, logs, "checkpoints are whole on h1; what is written there is copied to h3")

	var jobs []head.Job
	require.NoError(t, json.Unmarshal([]byte(r.on(0, "ps", "-o", "json")), &jobs))
	worker := jobs[0].Procs[1]
	require.Equal(t, "h3", worker.Host)
	pid := pidOutside(t, r.Hosts[2].Path("/proc"), worker.Pid)
	at = newestSaved(r.on(0, "logs", "--proc", "0"))
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	clitest.Gate(t, dir, 120)
	require.Eventually(t, func() bool {
		return strings.Contains(r.on(0, "logs", "--proc", "0"), "from the checkpoint")
	}, 2*time.Minute, 10*time.Millisecond)
	durable(at)

	r.Hosts[2].Kill() // what process 1 has comes from h1's copy
	clitest.Gate(t, dir, clitest.Open)
	out = r.on(0, "attach")
	require.Contains(t, out, "no other host is up: checkpoints lie on h1 alone")
	require.Equal(t, want, stateOf(t, r.Hosts[0].Path("/tmp/own"), steps), out)
	t.Log(out)
}

// newestSaved is the newest step that a run's output calls durable, -1 for none.
func newestSaved(out string) int64 {
	newest := int64(-1)
	for _, line := range strings.Split(out, "\n") {
		if i := strings.Index(line, "saved step "); i >= 0 {
			var step int64
			if _, err := fmt.Sscanf(line[i:], "saved step %d: durable", &step); err == nil {
				newest = max(newest, step)
			}
		}
	}
	return newest
}

// pidOutside is the number that a process of a host's namespace has here.
func pidOutside(t *testing.T, proc string, pid int) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/status")
	require.NoError(t, err)
	cmd, err := os.ReadFile(filepath.Join(proc, fmt.Sprint(pid), "cmdline"))
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(text), "\nNSpid:\t") {
			continue
		}
		_, ids, _ := strings.Cut(string(text), "\nNSpid:\t")
		ids, _, _ = strings.Cut(ids, "\n")
		numbers := strings.Fields(ids)
		other, err := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		if err == nil && len(numbers) > 1 && numbers[len(numbers)-1] == fmt.Sprint(pid) &&
			string(other) == string(cmd) {
			var n int
			_, err := fmt.Sscan(numbers[0], &n)
			require.NoError(t, err)
			return n
		}
	}
	t.Fatalf("process %d of the host is not seen from outside", pid)
	return 0
}
