package cluster_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// slurmTasks starts the tasks of a step that has one a host, with the environment that Slurm would give
// them, and more.
func slurmTasks(t *testing.T, r *Rig, dir, binary, job string, more []string, args ...string) (
	all []*exec.Cmd, said *bytes.Buffer) {
	t.Helper()
	said = &bytes.Buffer{}
	for i, h := range r.Hosts {
		env := []string{"env", "SLURM_JOB_ID=" + job, "SLURM_STEP_ID=0", "SLURM_PROCID=" + strconv.Itoa(i),
			fmt.Sprintf("SLURM_NTASKS=%d", len(r.Hosts)), fmt.Sprintf("SLURM_NNODES=%d", len(r.Hosts)),
			"SLURMD_NODENAME=" + h.Name, "SLURM_SUBMIT_DIR=" + dir,
			fmt.Sprintf("SLURM_JOB_END_TIME=%d", time.Now().Add(time.Hour).Unix()), "HOME=/root"}
		c := h.In(dir, slices.Concat(env, more, []string{binary, "cluster", "join", "--slurm", "--addr",
			h.Addr, "--"}, args)...)
		if c.Stderr = os.Stderr; i == 0 {
			c.Stdout, c.Stderr = said, said
		}
		require.NoError(t, c.Start())
		all = append(all, c)
	}
	return all, said
}

// TestClusterSlurm: the tasks of a step of Slurm, by their environment, make a cluster, train on it, and
// take it down. When all of their processes get SIGTERM at once, as with scancel, the run saves and ends,
// and the next job goes on from there to the weights of a run that nobody disturbed.
func TestClusterSlurm(t *testing.T) {
	const steps = 150
	quiet := tinyRun(t)
	code, out := runIn(t, quiet, nil, "train", "run.yaml", "-q", fmt.Sprint("train.steps=", steps))
	require.Zero(t, code, out)
	want := stateOf(t, quiet, steps)
	dir := tinyRun(t)
	r := newRig(t, 3, dir)
	binary := filepath.Join(dir, "lfactor")
	clitest.InstallBoth(t, binary)
	train := []string{"train", "run.yaml", "plan.procs=2", "checkpoint.interval=1000",
		fmt.Sprint("train.steps=", steps)}
	tasks, said := slurmTasks(t, r, dir, binary, "7", clitest.Gated(t, dir, 75), train...)
	require.Eventually(t, func() bool { return clitest.Steps(t, dir) > 5 }, 2*time.Minute, time.Millisecond,
		"the run does not start")
	began := time.Now()
	for _, p := range leftovers(t, binary) {
		if strings.Contains(p, "nsenter") { // which stands for srun
			continue
		}
		pid, err := strconv.Atoi(strings.Split(p, "/")[2])
		require.NoError(t, err)
		_ = syscall.Kill(pid, syscall.SIGTERM) // it may end with another
	}
	clitest.Gate(t, dir, 125) // it ends behind a step, and not by itself before it has heard the signal
	for i, c := range tasks {
		err := c.Wait()
		require.Equal(t, i == 0, err != nil, "task %d: %v: %s", i, err, said.String())
	}
	require.Equal(t, 130, tasks[0].ProcessState.ExitCode(), said.String())
	require.Contains(t, said.String(), "cluster slurm-7 has 3 hosts of Slurm's job 7")
	require.Contains(t, said.String(), "durable", "it saves")
	t.Logf("saved and ended after %v: KillWait is 30 s", time.Since(began).Round(time.Millisecond))
	require.Empty(t, leftovers(t, binary))

	tasks, said = slurmTasks(t, r, dir, binary, "8", nil, train...)
	for i, c := range tasks {
		require.NoError(t, c.Wait(), "task %d: %s", i, said.String())
	}
	require.Contains(t, said.String(), "verified", "it goes on from the save")
	require.Contains(t, said.String(), "the allocation ends at")
	require.Equal(t, want, stateOf(t, dir, steps), said.String())
	left, err := filepath.Glob(filepath.Join(dir, ".lfactor-slurm-*"))
	require.NoError(t, err)
	require.Empty(t, left, "tokens are taken away")
}
