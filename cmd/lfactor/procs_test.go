package main

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

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"

	"github.com/lfactor/lfactor/actors/run"
)

// TestProcsSame: two processes give the same losses to the last bit as one.
func TestProcsSame(t *testing.T) {
	t.Parallel()
	t.Run("dense", func(t *testing.T) { procsSame(t) })
	t.Run("experts", func(t *testing.T) { procsSame(t, tinyExperts...) })
}

// tinyExperts makes the tiny run's model one of experts that are shared out, with some that choose
// themselves by numbers of their own.
var tinyExperts = []string{"model.name=glm/4.5-air", "model.overrides.rope_scaling={}",
	"model.overrides.num_experts=8", "model.overrides.num_experts_per_tok=3",
	"model.overrides.moe_intermediate_size=16",
	"plan.ep=2", "train.router.loss=sequence", "train.router.loss_coef=0.01",
	"train.router.z_loss_coef=0.001", "train.router.jitter=0.01", "train.router.bias_rate=0.01",
	"train.router.capacity=1.5"}

func procsSame(t *testing.T, more ...string) {
	var runs [2][]run.Metrics
	for i := range runs {
		dir := tinyRun(t)
		args := append([]string{"train", "run.yaml", "-q", fmt.Sprintf("plan.procs=%d", i+1),
			"train.steps=8"}, more...)
		code, out := runIn(t, dir, nil, args...)
		require.Zero(t, code, out)
		runs[i] = metrics(t, dir)
	}
	require.Len(t, runs[0], 8)
	for i, a := range runs[0] {
		require.Equal(t, a.Loss, runs[1][i].Loss, "step %d", i+1)
		require.Equal(t, a.GradNorm, runs[1][i].GradNorm, "step %d", i+1)
	}
}

// children lists the processes whose parent is pid.
func children(t *testing.T, pid int) []int {
	t.Helper()
	return clitest.ChildrenOf(pid)
}

// TestProcKilled: kill -9 of one process ends the others within 5 s with one error that names rank, actor and cause.
func TestProcKilled(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("finding the worker needs /proc")
	}
	dir := tinyRun(t)
	c := exec.Command(built(t), "train", "run.yaml", "plan.procs=2", "train.steps=100000",
		"checkpoint.interval=0", "train.restarts=0")
	var out bytes.Buffer
	c.Dir, c.Stderr, c.Stdout = dir, &out, &out
	require.NoError(t, c.Start())
	defer func() { _ = c.Process.Kill() }()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
		return err == nil && bytes.Count(text, []byte("\n")) > 3
	}, 2*time.Minute, 20*time.Millisecond, "the run does not start")
	kids := children(t, c.Process.Pid)
	require.Len(t, kids, 1)
	killed := time.Now()
	require.NoError(t, syscall.Kill(kids[0], syscall.SIGKILL))
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	select {
	case err := <-ended:
		require.Error(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the leader goes on")
	}
	t.Logf("ended %v after the kill", time.Since(killed))
	var errs []string
	for _, l := range strings.Split(out.String(), "\n") {
		if strings.HasPrefix(l, "error:") {
			errs = append(errs, l)
		}
	}
	require.Len(t, errs, 1, out.String())
	require.Contains(t, errs[0], "rank 2 (pp 1 dp 0 tp 0)")
	require.Contains(t, errs[0], "killed by signal 9")
}

// TestSignals: SIGTERM ends with a durable checkpoint and exit 0, SIGINT with 130, and the same command goes on.
func TestSignals(t *testing.T) {
	t.Parallel()
	for sig, want := range map[syscall.Signal]int{syscall.SIGTERM: 0, syscall.SIGINT: 130} {
		dir := tinyRun(t)
		c := exec.Command(built(t), "train", "run.yaml", "train.steps=100000", "checkpoint.interval=0",
			"schedule.decay_steps=100")
		var out bytes.Buffer
		c.Dir, c.Stderr, c.Stdout = dir, &out, &out
		require.NoError(t, c.Start())
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
			return err == nil && bytes.Count(text, []byte("\n")) > 3
		}, 2*time.Minute, 20*time.Millisecond, "the run does not start")
		require.NoError(t, c.Process.Signal(sig))
		err := c.Wait()
		code := 0
		if x, ok := err.(*exec.ExitError); ok {
			code = x.ExitCode()
		}
		require.Equal(t, want, code, out.String())
		require.Contains(t, out.String(), "durable")
		last := metrics(t, dir)
		code, text := runIn(t, dir, nil, "train", "run.yaml", fmt.Sprintf("train.steps=%d", len(last)+2),
			"schedule.decay_steps=100", "checkpoint.interval=0")
		require.Zero(t, code, text)
		require.Contains(t, text, fmt.Sprintf("step %d/", len(last)+1))
	}
}
