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
	"github.com/lfactor/lfactor/configs/exit"
)

// pod starts the command of a manifest's container as the kubelet would, on a host, with more environment.
func pod(t *testing.T, h *Host, dir, binary, name string, index, hosts int, said *bytes.Buffer,
	more []string, args ...string) *exec.Cmd {
	t.Helper()
	home := t.TempDir()
	env := []string{"env", "LFACTOR_JOB=j", "LFACTOR_JOB_UID=u", "LFACTOR_HOSTS=" + strconv.Itoa(hosts),
		"LFACTOR_POD=" + name,
		"LFACTOR_POD_IP=" + h.Addr, "LFACTOR_MEET=" + dir, "JOB_COMPLETION_INDEX=" + strconv.Itoa(index),
		"HOME=" + home}
	c := h.In(dir, slices.Concat(env, more, []string{binary, "cluster", "join", "--kubernetes", "--"},
		args)...)
	if c.Stderr = os.Stderr; said != nil {
		c.Stdout, c.Stderr = said, said
	}
	require.NoError(t, c.Start())
	return c
}

// TestClusterKubernetes: pods of an indexed job, by their environment, make a cluster and train on it. One
// that is killed and started again under another name joins again or hears that the job is done, and the
// weights are those of a run left alone.
func TestClusterKubernetes(t *testing.T) {
	const steps = 150
	quiet := tinyRun(t)
	code, out := runIn(t, quiet, nil, "train", "run.yaml", "-q", fmt.Sprint("train.steps=", steps))
	require.Zero(t, code, out)
	dir := tinyRun(t)
	r := newRig(t, 2, dir)
	binary := filepath.Join(dir, "lfactor")
	clitest.InstallBoth(t, binary)
	var said bytes.Buffer
	first := pod(t, r.Hosts[0], dir, binary, "j-0-aaaaa", 0, 2, &said, clitest.Gated(t, dir, steps/2),
		"train", "run.yaml", "plan.procs=2", "checkpoint.interval=1000", fmt.Sprint("train.steps=", steps))
	second := pod(t, r.Hosts[1], dir, binary, "j-1-bbbbb", 1, 2, nil, nil)
	require.Eventually(t, func() bool { return clitest.Steps(t, dir) > 5 }, 2*time.Minute, time.Millisecond,
		"the run does not start")
	for _, p := range leftovers(t, binary) { // of the second pod
		pid, err := strconv.Atoi(strings.Split(p, "/")[2])
		require.NoError(t, err)
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil &&
			bytes.Contains(env, []byte("LFACTOR_POD=j-1")) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may end with another
		}
	}
	require.Error(t, second.Wait())
	second = pod(t, r.Hosts[1], dir, binary, "j-1-ccccc", 1, 2, nil, nil)
	clitest.Gate(t, dir, clitest.Open)
	require.NoError(t, first.Wait(), said.String())
	require.NoError(t, second.Wait())
	require.Contains(t, said.String(), "cluster kubernetes-j has 2 hosts of Kubernetes's job j")
	require.Equal(t, stateOf(t, quiet, steps), stateOf(t, dir, steps), said.String())
	left, err := os.ReadFile(filepath.Join(dir, ".lfactor-kubernetes-j.u"))
	require.NoError(t, err)
	require.Equal(t, `{"done":true}`, string(left), "tokens are taken away")
}

// TestClusterKubernetesEnds: a job that is deleted ends all pods at once by SIGTERM, as the kubelet does. The run hears of it
// twice, from its owner and since a host leaves: the last step is saved, and none is lost.
func TestClusterKubernetesEnds(t *testing.T) {
	dir := tinyRun(t)
	r := newRig(t, 2, dir)
	binary := filepath.Join(dir, "lfactor")
	clitest.InstallBoth(t, binary)
	var said bytes.Buffer
	first := pod(t, r.Hosts[0], dir, binary, "j-0-aaaaa", 0, 2, &said, nil, "train", "run.yaml", "plan.procs=2",
		"plan.dp=1", "train.buddy=off",
		"checkpoint.interval=100000", "train.steps=100000")
	second := pod(t, r.Hosts[1], dir, binary, "j-1-bbbbb", 1, 2, nil, nil)
	require.Eventually(t, func() bool { return clitest.Steps(t, dir) > 20 }, 2*time.Minute, time.Millisecond,
		"the run does not start")
	for _, p := range leftovers(t, binary) {
		pid, err := strconv.Atoi(strings.Split(p, "/")[2])
		require.NoError(t, err)
		if strings.Contains(p, binary+" cluster join") && !strings.Contains(p, "nsenter") { // which stands for the kubelet
			require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
		}
	}
	_, _ = first.Wait(), second.Wait() // the second as it may
	require.Equal(t, exit.Interrupted, first.ProcessState.ExitCode(), "a job that is not done is not said to be: %s", &said)
	steps := clitest.Steps(t, dir)
	latest, err := os.ReadFile(filepath.Join(dir, "ckpt", "latest"))
	require.NoError(t, err, said.String())
	require.Contains(t, string(latest), fmt.Sprintf("%08d", steps), said.String())
}

// TestClusterTakenBack: a host that hears that it is taken back leaves in time, without a step that is taken again; its pod does
// not count as done, since the job is not.
func TestClusterTakenBack(t *testing.T) {
	dir := tinyRun(t)
	r := newRig(t, 2, dir)
	binary := filepath.Join(dir, "lfactor")
	clitest.InstallBoth(t, binary)
	var said bytes.Buffer
	notice := filepath.Join(dir, "spot")
	first := pod(t, r.Hosts[0], dir, binary, "j-0-aaaaa", 0, 2, &said, clitest.Gated(t, dir, 20), "train", "run.yaml",
		"plan.procs=2", "checkpoint.interval=1000", "train.steps=60")
	second := pod(t, r.Hosts[1], dir, binary, "j-1-bbbbb", 1, 2, nil, []string{"LFACTOR_NOTICE=" + notice})
	require.Eventually(t, func() bool { return clitest.Steps(t, dir) == 20 }, 2*time.Minute, time.Millisecond,
		"the run does not start")
	require.NoError(t, os.WriteFile(notice, []byte("TRUE"), 0o644))
	require.Error(t, second.Wait())
	require.Equal(t, exit.Interrupted, second.ProcessState.ExitCode())
	clitest.Gate(t, dir, clitest.Open)
	require.NoError(t, first.Wait(), said.String())
	require.Contains(t, said.String(), "saved step 20: durable")
	require.Regexp(t, `! a host of this run is taken back in \d+s; 20 steps since step 0 are not saved, and how long that takes is not known`, said.String())
	all := metrics(t, dir)
	require.Len(t, all, 60, said.String())
	for i, m := range all {
		require.EqualValues(t, i+1, m.Step, "a step is taken twice: %s", &said)
	}
}

// TestClusterManifest: a run file with its overrides is printed as a job; bad flags end with exit code 2 and
// are named.
func TestClusterManifest(t *testing.T) {
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "cluster", "manifest", "run.yaml", "--image", "lf:1", "--hosts", "3",
		"--claim", "data",
		"--gpus", "2", "train.steps=7")
	require.Zero(t, code, out)
	require.Contains(t, out, "steps: 7")
	require.Contains(t, out, "completions: 3")
	for _, bad := range [][]string{{"--image", ""}, {"--hosts", "0"}, {"--claim", "Data!"}, {"--memory",
		"lots"},
		{"--mount", "data"}, {"--name", "-"}, {"--gpus", "-1"}, {"--retries", "-1"}, {"--cpu", "x"},
		{"--secret", "A"}} {
		args := append([]string{"cluster", "manifest", "run.yaml", "--image", "lf:1", "--claim", "data"},
			bad...)
		code, out := runIn(t, dir, nil, args...)
		require.Equal(t, 2, code, "%v: %s", bad, out)
		require.Contains(t, out, bad[0])
	}
}
