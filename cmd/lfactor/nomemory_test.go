package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestWorkerOutOfMemory: a worker that the system kills for want of memory in a control group is started
// again, with the cause and the limit said, and the run ends as one that nobody disturbed.
func TestWorkerOutOfMemory(t *testing.T) {
	t.Parallel()
	const mib = 500
	group := fmt.Sprint("/sys/fs/cgroup/memory/lfactor-test-", os.Getpid())
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skip("a control group with a limit of memory: ", err)
	}
	t.Cleanup(func() {
		require.Eventually(t, func() bool { return os.Remove(group) == nil }, 2*time.Minute,
			10*time.Millisecond)
	})
	limit := filepath.Join(group, "memory.limit_in_bytes")
	require.NoError(t, os.WriteFile(limit, fmt.Append(nil, mib<<20), 0o644))
	inGroup := func(args ...string) *exec.Cmd {
		return exec.Command("sh", append([]string{"-c", `echo $$ >"$0"/cgroup.procs && exec "$@"`, group},
			args...)...)
	}
	const steps = 120
	quiet, dir := tinyRun(t), tinyRun(t)
	args := []string{"train", "run.yaml", "plan.procs=2", "checkpoint.interval=50",
		fmt.Sprint("train.steps=", steps)}
	code, out := runIn(t, quiet, nil, args...)
	require.Zero(t, code, out)
	c := inGroup(append([]string{built(t)}, args...)...)
	var said bytes.Buffer
	c.Dir, c.Stdout, c.Stderr = dir, &said, &said
	c.Env = append(os.Environ(), clitest.Gated(t, dir, steps/2)...)
	require.NoError(t, c.Start())
	defer func() { _ = c.Process.Kill() }()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
		return err == nil && bytes.Count(text, []byte("\n")) > 5
	}, 2*time.Minute, time.Millisecond)
	kids := children(t, c.Process.Pid)
	require.Len(t, kids, 1)
	// the worker is the first that the system takes, and what fills the memory the next
	adj := fmt.Sprintf("/proc/%d/oom_score_adj", kids[0])
	require.NoError(t, os.WriteFile(adj, []byte("1000"), 0o644))
	// nobody is started again before the memory has room
	require.NoError(t, c.Process.Signal(syscall.SIGSTOP))
	require.ErrorContains(t, inGroup("tail", "/dev/zero").Run(), "signal: killed")
	clitest.Gate(t, dir, clitest.Open)
	require.NoError(t, c.Process.Signal(syscall.SIGCONT))
	require.NoError(t, c.Wait(), said.String())
	require.Regexp(t, fmt.Sprintf(`lost: process 1 \(pid %d\) was killed by signal 9 \(killed\) by the system: its `+
		`control group had used the %d MiB that it may have; give the run less to hold .*; it is started again`,
		kids[0], mib), said.String())
	require.Equal(t, stateOf(t, quiet, steps), stateOf(t, dir, steps))
}
