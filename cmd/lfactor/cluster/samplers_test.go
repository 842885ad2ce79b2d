package cluster_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/topology/machine"
)

// hostsOf is on how many hosts processes are.
func hostsOf(all []head.Proc) int {
	hosts := map[string]bool{}
	for _, p := range all {
		hosts[p.Host] = true
	}
	return len(hosts)
}

// TestClusterSamplers: samplers and a judge on the hosts of a cluster, which talk with an environment, draw
// what one process draws, to the last bit of the weights: also where one is killed, one is stopped, the
// agent of a host is killed with the processes of that host, and the process that trains.
func TestClusterSamplers(t *testing.T) {
	t.Parallel()
	const strikes, further = 5, 3 // each that many steps behind the last
	const steps = strikes*(further+clitest.GateSteps) + 1
	train := append(append([]string{"train", "run.yaml"}, clitest.Talks...), "reward.kind=model",
		"reward.model="+clitest.DrawnJudge(t))
	quiet := clitest.DrawnRun(t, steps)
	code, out := runIn(t, quiet, nil, train...)
	require.Zero(t, code, out)
	answers, err := os.ReadFile(filepath.Join(quiet, "run", "rollouts.jsonl"))
	require.NoError(t, err)

	dir := clitest.DrawnRun(t, steps)
	clitest.Gate(t, dir, further)
	v := verbs{t, dir, clusterHome(t, dir, "test")}
	v.verb(0, "cluster", "up", "--local", "3", "--name", "test")
	cmd := exec.Command(builtHead(t), append(train, "rollout.samplers=3", "reward.judges=1",
		"rollout.wait=600", "--cluster", "test")...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr, cmd.Stdout, cmd.Env = dir, &said, &said, append(os.Environ(), v.env...)
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	steps1 := func() int {
		text, _ := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
		return bytes.Count(text, []byte("\n"))
	}
	procs := func() []head.Proc {
		var s head.Status
		v.json(&s, "cluster", "status")
		return s.Jobs[0].Procs
	}
	for k, strike := range [strikes]func(all []head.Proc) error{
		func(all []head.Proc) error { return syscall.Kill(all[1].Pid, syscall.SIGKILL) },
		func(all []head.Proc) error { return syscall.Kill(all[2].Pid, syscall.SIGSTOP) },
		func(all []head.Proc) error {
			return syscall.Kill(machine.Holder(filepath.Join(dir, "home", "clusters", "test", "agents",
				all[3].Host)),
				syscall.SIGKILL)
		},
		func(all []head.Proc) error { return syscall.Kill(all[4].Pid, syscall.SIGKILL) },
		func(all []head.Proc) error { return syscall.Kill(all[0].Pid, syscall.SIGKILL) },
	} {
		at := steps1()
		clitest.Gate(t, dir, at+further)
		require.Eventually(t, func() bool { return steps1() >= at+further }, 2*time.Minute, time.Millisecond,
			"%d: %s", k, &said)
		all := procs()
		require.Len(t, all, 5)
		if k == 0 {
			require.Equal(t, 3, hostsOf(all))
		}
		require.NoError(t, strike(all), k)
	}
	clitest.Gate(t, dir, steps)
	require.NoError(t, <-ended, said.String())
	require.Equal(t, stateOf(t, quiet, steps), stateOf(t, dir, steps), said.String())
	again, err := os.ReadFile(filepath.Join(dir, "run", "rollouts.jsonl"))
	require.NoError(t, err)
	require.Equal(t, string(answers), string(again))
	require.GreaterOrEqual(t, strings.Count(said.String(),
		"another takes its place, and what it drew is drawn again"), 2,
		said.String())
	t.Log(said.String())
	for _, e := range eventsOf(t, dir, v.env) {
		t.Log(fmt.Sprint(e.Time.Format("15:04:05.000 "), e.Kind, " ", e.Text))
	}
}
