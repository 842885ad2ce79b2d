package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/topology/machine"
)

// TestClusterFullDisk: the disk of a head and its agents is full, so that neither the store nor logs nor what
// jobs write can be kept. A run whose checkpoints lie elsewhere goes on meanwhile, also while the head is
// killed, and ends with the weights of one that nobody disturbed; the cluster says what is lost, and takes jobs
// when there is room again.
func TestClusterFullDisk(t *testing.T) {
	longOnly(t, "a disk that is full under a head and its agents: sim/heads has stores that take nothing")
	quiet := tinyRun(t)
	train := []string{"train", "run.yaml", "checkpoint.interval=50", "train.steps=1500"}
	code, out := runIn(t, quiet, nil, append(train, "-q")...)
	require.Zero(t, code, out)
	dir := tinyRun(t)
	home := filepath.Join(dir, "home")
	require.NoError(t, os.Mkdir(home, 0o700))
	mount := exec.Command("mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", home)
	if out, err := mount.CombinedOutput(); err != nil {
		t.Skipf("left out: a disk that is full needs a mount: %s", out)
	}
	t.Cleanup(func() { _ = syscall.Unmount(home, syscall.MNT_DETACH) }) // behind the cluster's end
	v := verbs{t, dir, clusterHome(t, dir, "test")}
	v.verb(0, "cluster", "up", "--local", "2", "--name", "test")
	cluster := filepath.Join(home, "clusters", "test")
	lines := func() int {
		text, _ := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
		return strings.Count(string(text), "\n")
	}
	v.verb(0, append(train, "--cluster", "test", "--detach", "plan.procs=2")...)
	require.Eventually(t, func() bool { return lines() > 5 }, 2*time.Minute, time.Millisecond)
	fill(t, filepath.Join(home, "full"))
	from := lines()
	require.Eventually(t, func() bool { return lines() > from+5 }, 2*time.Minute, time.Millisecond)
	require.Eventually(t, func() bool {
		code, out := runIn(t, dir, v.env, "events") // a head that cannot write may end, and is started again
		return code == 0 && strings.Contains(out, "output of job 1 is lost, though the job goes on")
	}, 2*time.Minute, 50*time.Millisecond)
	pid := machine.Holder(filepath.Join(cluster, "head"))
	require.Positive(t, pid)
	_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	require.Eventually(t, func() bool { return lines() >= 1500 }, 2*time.Minute, 10*time.Millisecond)
	require.NoError(t, os.Remove(filepath.Join(home, "full")))
	require.Eventually(t, func() bool {
		var jobs []head.Job
		code, _ := runIn(t, dir, v.env, "ps")
		if code == 0 {
			v.json(&jobs, "ps")
		}
		return len(jobs) == 1 && jobs[0].State == head.Ended && jobs[0].Code == 0
	}, 2*time.Minute, 100*time.Millisecond)
	code, out = runIn(t, dir, v.env, "why", "--cluster", "test")
	require.NotZero(t, code)
	require.Contains(t, out, "no job runs")
	require.Equal(t, stateOf(t, quiet, 1500), stateOf(t, dir, 1500))
	require.NotEqual(t, pid, machine.Holder(filepath.Join(cluster, "head")))
	v.verb(0, "train", "run.yaml", "--cluster", "test", "train.steps=2", "log.dir=run2",
		"checkpoint.dir=ckpt2")
	t.Log(v.verb(0, "events"))
}

// fill writes a file until its disk has no room.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	require.NoError(t, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 1<<20))
	}
	for err = nil; err == nil; { // to the last page
		_, err = f.Write(make([]byte, 512))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
}
