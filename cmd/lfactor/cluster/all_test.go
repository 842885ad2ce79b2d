package cluster_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
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

// killTogether kills every process that names dir in its command line. They are stopped first: an agent
// that outlives the head by a moment would start it again, and the head an agent.
func killTogether(t *testing.T, dir string) {
	t.Helper()
	stopped := map[int]bool{}
	for fresh := true; fresh; { // one of them may have been starting another
		fresh = false
		for _, p := range leftovers(t, dir) {
			pid, err := strconv.Atoi(strings.Split(p, "/")[2])
			require.NoError(t, err)
			if !stopped[pid] && syscall.Kill(pid, syscall.SIGSTOP) == nil { // else it has ended by itself
				stopped[pid], fresh = true, true
			}
		}
	}
	for pid := range stopped {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended with another
	}
}

// TestClusterAllKilled: head, agents and processes are killed at one moment, again and again. Nothing is
// left over, and the same two commands go on from what is durable, to the weights, optimizer state and
// ledger of a run that nobody disturbed.
func TestClusterAllKilled(t *testing.T) {
	longOnly(t, "everything is killed at once: sim/heads has heads that read their store again while "+
		"agents are away")
	t.Parallel()
	rounds := 2
	if *long {
		rounds = 10
	} else {
		t.Log("everything is killed 2 times instead of 10: add -long")
	}
	steps := int64(60 * rounds) // a round does at most 50 of them before everything is killed
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", fmt.Sprint("train.steps=", steps))
	require.Zero(t, code, out)
	want := stateOf(t, dir, steps)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "run")))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "ckpt")))
	env := clusterHome(t, dir, "test")
	home := filepath.Join(dir, "home")
	rng := rand.New(rand.NewPCG(7, 3))
	train := []string{"train", "run.yaml", "--cluster", "test", "plan.procs=2", fmt.Sprint("train.steps=",
		steps)}
	for range rounds {
		code, out := runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", "test")
		require.Zero(t, code, out)
		cmd := exec.Command(builtHead(t), train...)
		var said bytes.Buffer
		start := clitest.Steps(t, dir)
		cmd.Dir, cmd.Stderr, cmd.Stdout = dir, &said, &said
		cmd.Env = slices.Concat(os.Environ(), env, clitest.Gated(t, dir, start+50))
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return clitest.Steps(t, dir) > start+3 }, 2*time.Minute,
			time.Millisecond, "the run does not get on")
		<-time.After(time.Duration(rng.IntN(200)) * time.Millisecond)
		killTogether(t, home)  // the head, and agents; processes end with their agent
		_ = cmd.Process.Kill() // it would wait for the head to come back
		_ = cmd.Wait()
		require.Eventually(t, func() bool { return len(leftovers(t, dir)) == 0 }, 2*time.Minute,
			20*time.Millisecond, "%v", leftovers(t, dir))
		code, out = runIn(t, dir, env, "cluster", "down", "test")
		require.Zero(t, code, out)
	}
	code, out = runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", "test")
	require.Zero(t, code, out)
	code, out = runIn(t, dir, env, train...)
	require.Zero(t, code, out)
	require.Contains(t, out, "verified", "it goes on from a checkpoint")
	require.Equal(t, want, stateOf(t, dir, steps), out)
}
