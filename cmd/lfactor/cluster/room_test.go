package cluster_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/topology/machine"
)

// TestClusterNoRoom: a host is lost, there is no spare one, and the other has no memory for the processes of
// both. The run goes on with one replica instead of two from what is durable. When the host is back it goes
// on with two, and when that is drained with one again. Every sample is taken once, and the losses are those
// of a run that nobody disturbed but for the order of sums.
func TestClusterNoRoom(t *testing.T) {
	longOnly(t, "fewer replicas where a host is lost: the script widths.txt of head/decide has what is "+
		"decided")
	t.Parallel()
	const steps = 400
	quiet := tinyRun(t)
	// two ranks a process: 60 % of the machine's memory
	each := machine.MemoryLimit("/") * 3 / 10 >> 20
	train := []string{"train", "run.yaml", "plan.procs=2", fmt.Sprintf("plan.memory=%dMiB", each),
		"checkpoint.interval=20", fmt.Sprint("train.steps=", steps)}
	code, out := runIn(t, quiet, nil, append(train, "-q")...)
	require.Zero(t, code, out)
	alone, want := metrics(t, quiet), stateOf(t, quiet, steps)
	dir := tinyRun(t)
	env := clusterHome(t, dir, "test")
	home := filepath.Join(dir, "home", "clusters", "test")
	code, out = runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", "test")
	require.Zero(t, code, out)
	cmd := exec.Command(builtHead(t), append(train, "--cluster", "test")...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr, cmd.Stdout = dir, &said, &said
	cmd.Env = slices.Concat(os.Environ(), env, clitest.Gated(t, dir, 0))
	require.NoError(t, cmd.Start())
	last := func() (step int) {
		text, _ := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
		all := regexp.MustCompile(`"step":(\d+),`).FindAllStringSubmatch(string(text), -1)
		if len(all) > 0 {
			_, _ = fmt.Sscan(all[len(all)-1][1], &step)
		}
		return step
	}
	past := func(n int) {
		t.Helper()
		from := last()
		clitest.Gate(t, dir, from+n+30)
		require.Eventually(t, func() bool { return last() > from+n }, 2*time.Minute, time.Millisecond,
			"the run does not get on: %s", said.String())
	}
	past(30)
	h2 := filepath.Join(home, "agents", "h2")
	pid := machine.Holder(h2)
	require.NoError(t, os.Rename(h2, h2+".lost")) // else the head starts it again
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	clitest.Gate(t, dir, last()+40)
	waitEvent(t, dir, env, 1, "it makes durable what its other processes hold")
	waitEvent(t, dir, env, 1, "goes on with 1 replica instead of 2, from what is durable")
	past(20)
	require.NoError(t, os.Rename(h2+".lost", h2))
	startAgent(t, home, "h2")
	clitest.Gate(t, dir, last()+40)
	waitEvent(t, dir, env, 1, "goes on with 2 replicas instead of 1: there is room for them")
	waitEvent(t, dir, env, 2, "job 1 starts on [h1 h2]")
	past(20)
	code, out = runIn(t, dir, env, "cluster", "drain", "h2")
	require.Zero(t, code, out)
	clitest.Gate(t, dir, last()+40)
	waitEvent(t, dir, env, 2, "job 1 starts on [h1]")
	clitest.Gate(t, dir, clitest.Open)
	require.NoError(t, cmd.Wait(), said.String())
	for _, e := range eventsOf(t, dir, env) {
		t.Log(e.Time.Format("15:04:05.000"), e.Kind, e.Text)
	}
	got := metrics(t, dir)
	require.Len(t, got, steps)
	for i, m := range got {
		require.Equal(t, alone[i].Step, m.Step)
		require.InEpsilon(t, alone[i].Loss, m.Loss, 1e-4, "step %d: sums in another order", m.Step)
	}
	require.Equal(t, want.Ledger, stateOf(t, dir, steps).Ledger)
}

// TestClusterNarrows: a host is lost before the first checkpoint is due, and the other has no memory for the
// processes of both. What the process that is left holds, of its own state and of the other's, is made
// durable, and the run goes on with one replica from there: not one step is taken again where replicas hold
// the same, and those since the newest copy in memory where they share the optimizer's state out. Every
// sample is taken once.
func TestClusterNarrows(t *testing.T) {
	longOnly(t, "fewer replicas before the first checkpoint: sim.TestGone has it in virtual time")
	for _, zero := range []int{0, 2} {
		t.Run(fmt.Sprint("zero", zero), func(t *testing.T) {
			t.Parallel()
			narrows(t, zero)
		})
	}
}

func narrows(t *testing.T, zero int) {
	const steps = 150
	quiet := tinyRun(t)
	each := machine.MemoryLimit("/") * 6 / 10 >> 20 // one rank a process
	train := []string{"train", "run.yaml", "plan.procs=2", fmt.Sprintf("plan.memory=%dMiB", each),
		fmt.Sprint("plan.zero=", zero), "plan.pp=1", "checkpoint.interval=0", "train.buddy=5",
		fmt.Sprint("train.steps=", steps)}
	code, out := runIn(t, quiet, nil, append(train, "-q")...)
	require.Zero(t, code, out)
	alone, want := metrics(t, quiet), stateOf(t, quiet, steps)
	dir, name := tinyRun(t), fmt.Sprint("narrow", zero)
	env := clusterHome(t, dir, name)
	h2 := filepath.Join(dir, "home", "clusters", name, "agents", "h2")
	code, out = runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", name)
	require.Zero(t, code, out)
	cmd := exec.Command(builtHead(t), append(train, "--cluster", name)...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr, cmd.Stdout = dir, &said, &said
	cmd.Env = slices.Concat(os.Environ(), env, clitest.Gated(t, dir, steps/2))
	require.NoError(t, cmd.Start())
	last := func() (step int) {
		text, _ := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
		all := regexp.MustCompile(`"step":(\d+),`).FindAllStringSubmatch(string(text), -1)
		if len(all) > 0 {
			_, _ = fmt.Sscan(all[len(all)-1][1], &step)
		}
		return step
	}
	require.Eventually(t, func() bool { return last() >= 30 }, 2*time.Minute, time.Millisecond,
		"the run does not get on")
	pid := machine.Holder(h2)
	require.NoError(t, os.Rename(h2, h2+".lost")) // else the head starts it again
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	at := last()
	clitest.Gate(t, dir, clitest.Open)
	began := time.Now()
	require.NoError(t, cmd.Wait(), said.String())
	t.Logf("lost after step %d; ended %.1f s later", at, time.Since(began).Seconds())
	for _, line := range strings.Split(said.String(), "\n") {
		if !strings.Contains(line, "step ") || strings.Contains(line, "saved") || strings.Contains(line,
			"!") {
			t.Log(line)
		}
	}
	found := regexp.MustCompile(`saved step (\d+): durable`).FindStringSubmatch(said.String())
	require.NotNil(t, found, said.String())
	var saved int
	_, _ = fmt.Sscan(found[1], &saved)
	again := 0
	if zero > 0 {
		again = 5 + 5 // copies may be under way
	}
	require.GreaterOrEqual(t, saved, at-again, "lost after step %d", at)
	waitEvent(t, dir, env, 1, "it makes durable what its other processes hold")
	waitEvent(t, dir, env, 1, "goes on with 1 replica instead of 2, from what is durable")
	got := metrics(t, dir)
	require.Len(t, got, steps)
	for i, m := range got {
		require.Equal(t, alone[i].Step, m.Step)
		require.InEpsilon(t, alone[i].Loss, m.Loss, 1e-4, "step %d: sums in another order", m.Step)
		if i < saved {
			require.Equal(t, alone[i].Loss, m.Loss, "step %d of %d that were handed on", m.Step, saved)
		}
	}
	require.Equal(t, want.Ledger, stateOf(t, dir, steps).Ledger)
}

// waitEvent waits until so many events of the cluster say something.
func waitEvent(t *testing.T, dir string, env []string, n int, text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		k := 0
		for _, e := range eventsOf(t, dir, env) {
			if strings.Contains(e.Text, text) {
				k++
			}
		}
		return k == n
	}, 2*time.Minute, 20*time.Millisecond, "%d times: %s", n, text)
}

// startAgent starts an agent of a local cluster as its head would.
func startAgent(t *testing.T, home, name string) {
	t.Helper()
	var local head.LocalAgents
	text, err := os.ReadFile(filepath.Join(home, "head", "agents.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &local))
	_, err = machine.Detached(local[name].Dir, append([]string{builtHead(t)}, local[name].Args...)...)
	require.NoError(t, err)
}
