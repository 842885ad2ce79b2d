package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// recovered is a run in several processes of which some were killed.
type recovered struct {
	out   string
	state state
	back  int // how often it recovered
}

// trainKilled trains and kills a process at each of some moments after the first step.
func trainKilled(t *testing.T, dir string, moments []time.Duration, victim func(kids []int) int, args ...string) recovered {
	t.Helper()
	c := exec.Command(built(t), append([]string{"train", "run.yaml", "train.steps=60"}, args...)...)
	var out bytes.Buffer
	c.Dir, c.Stderr, c.Stdout = dir, &out, &out
	require.NoError(t, c.Start())
	defer func() { _ = c.Process.Kill() }()
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
		return err == nil && bytes.Count(text, []byte("\n")) > 0
	}, 60*time.Second, time.Millisecond, "the run does not start")
	for _, after := range moments {
		select {
		case <-time.After(after):
		case err := <-ended:
			require.NoError(t, err, out.String())
			ended <- err
		}
		if kids := children(t, c.Process.Pid); len(kids) > 0 {
			_ = syscall.Kill(victim(kids), syscall.SIGKILL) // it may have ended in order
		}
	}
	require.NoError(t, <-ended, out.String())
	return recovered{out.String(), stateOf(t, dir, 60), len(regexp.MustCompile(`recovered after`).FindAllString(out.String(), -1))}
}

// TestWorkerKilled: kill -9 of a worker process at any moment costs steps that are taken again, and nothing else: the leader goes on, and weights,
// optimizer state, ledger and metrics are those of a run that nobody disturbed.
func TestWorkerKilled(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("finding the worker needs /proc")
	}
	n := 6
	if *long {
		n = 200
	}
	quiet := tinyRun(t)
	want := trainKilled(t, quiet, nil, nil, "plan.procs=2")
	back := 0
	for i := range n {
		rng := rand.New(rand.NewPCG(uint64(i), 77))
		dir := tinyRun(t)
		got := trainKilled(t, dir, []time.Duration{time.Duration(rng.IntN(400)) * time.Millisecond}, func(kids []int) int { return kids[rng.IntN(len(kids))] }, "plan.procs=2")
		require.Equal(t, want.state, got.state, got.out)
		require.Equal(t, losses(t, quiet), losses(t, dir), got.out)
		back += got.back
	}
	t.Logf("%d of %d runs recovered", back, n)
	require.Greater(t, back, n/3)
}

// losses are those of a run's metrics, a line a step.
func losses(t *testing.T, dir string) (out []string) {
	for _, m := range metrics(t, dir) {
		out = append(out, fmt.Sprint(m.Step, m.Loss, m.GradNorm))
	}
	return out
}
