package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
)

// recovered is a run in several processes of which some were killed.
type recovered struct {
	out   string
	state state
	back  int // how often it recovered
}

// trainKilled trains and sends a process a signal at each of some moments after the first step.
func trainKilled(t *testing.T, dir string, sig syscall.Signal, moments []time.Duration,
	victim func(kids []int) int, args ...string) recovered {
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
	}, 2*time.Minute, time.Millisecond, "the run does not start")
	for _, after := range moments {
		select {
		case <-time.After(after):
		case err := <-ended:
			require.NoError(t, err, out.String())
			ended <- err
		}
		if kids := children(t, c.Process.Pid); len(kids) > 0 {
			_ = syscall.Kill(victim(kids), sig) // it may have ended in order
		}
	}
	require.NoError(t, <-ended, out.String())
	return recovered{out.String(), stateOf(t, dir, 60),
		len(regexp.MustCompile(`recovered after`).FindAllString(out.String(), -1))}
}

// TestWorkerKilled: kill -9 of a worker process at any moment costs steps that are taken again, and nothing
// else: the other processes stay, and weights, optimizer state, ledger and metrics are those of a run that
// nobody disturbed. The state comes from where the plan has it.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("finding the worker needs /proc")
	}
	n := 2
	if *long {
		n = 50
	} else {
		t.Log("2 moments for each source of the state instead of 50: add -long")
	}
	for _, c := range []struct {
		from string
		args []string
	}{
		{"the checkpoint", []string{"plan.procs=2", "train.buddy=off"}},
		{"copies in memory", []string{"plan.procs=2", "train.buddy=2", "checkpoint.interval=50"}},
		{"copies in memory", []string{"plan.procs=4", "plan.zero=1", "train.buddy=1",
			"checkpoint.interval=50"}},
		{"another replica", []string{"plan.procs=4", "plan.zero=0"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			quiet := tinyRun(t)
			want := trainKilled(t, quiet, 0, nil, nil, c.args...)
			back, from := 0, 0
			for i := range n {
				rng := rand.New(rand.NewPCG(uint64(i), 77))
				dir := tinyRun(t)
				moments := []time.Duration{time.Duration(rng.IntN(400)) * time.Millisecond}
				got := trainKilled(t, dir, syscall.SIGKILL, moments, func(kids []int) int {
					return kids[rng.IntN(len(kids))]
				}, c.args...)
				require.Equal(t, want.state, got.state, got.out)
				require.Equal(t, losses(t, quiet), losses(t, dir), got.out)
				back += got.back
				from += strings.Count(got.out, "from "+c.from)
			}
			t.Logf("%d of %d runs recovered, %d from %s", back, n, from, c.from)
			require.Greater(t, back, n/3)
			require.Greater(t, from, 0)
		})
	}
}

// TestWorkerStopped: a process that is stopped says nothing; it is ended and started again, and the run has
// the bits that it would have had.
func TestWorkerStopped(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("finding the worker needs /proc")
	}
	quiet, dir := tinyRun(t), tinyRun(t)
	want := trainKilled(t, quiet, 0, nil, nil, "plan.procs=2")
	got := trainKilled(t, dir, syscall.SIGSTOP, []time.Duration{50 * time.Millisecond},
		func(kids []int) int { return kids[0] }, "plan.procs=2")
	require.Equal(t, want.state, got.state, got.out)
	require.Equal(t, losses(t, quiet), losses(t, dir), got.out)
	require.Equal(t, 1, got.back, got.out)
	require.Regexp(t, `said nothing for [0-9.]+ s and was killed by signal 9`, got.out)
	t.Log(regexp.MustCompile(`said nothing for [0-9.]+ s|recovered after.*`).FindAllString(got.out, -1))
}

// TestWorkerKilledAgain: a process that dies in the same step again and again ends the run, with one error
// that names the cause.
func TestWorkerKilledAgain(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	code, out := runIn(t, dir, []string{run.EnvFault + "=kill-always=update@5+0"}, "train", "run.yaml",
		"plan.procs=2", "train.restarts=2", "plan.dp=1", "train.steps=20")
	require.Equal(t, 1, code, out)
	require.Equal(t, 1, strings.Count(out, "error:"), out)
	require.Regexp(t, `error: rank 1 has ended 3 times at step 5 and is not started again \(train.restarts=2\); the last time: rank 1 .*killed by signal 9`, out)
}

// TestPlanCopies: plan says what recovery keeps in memory, and how often, where there is more than one
// process.
func TestPlanCopies(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	plan := func(args ...string) (p struct {
		Bytes int64 `json:"copy_bytes"`
		Every int64 `json:"copy_every"`
	}) {
		code, out := runIn(t, dir, nil, append([]string{"plan", "run.yaml", "-o", "json"}, args...)...)
		require.Zero(t, code, out)
		require.NoError(t, json.Unmarshal([]byte(out), &p), out)
		return p
	}
	auto, three := plan("plan.procs=2"), plan("plan.procs=2", "train.buddy=3")
	require.Greater(t, auto.Bytes, int64(100_000),
		"float32 weights and two moments of the larger half of the parameters")
	require.Positive(t, auto.Every)
	require.Equal(t, auto.Bytes, three.Bytes)
	require.Equal(t, int64(3), three.Every)
	require.Zero(t, plan("plan.procs=1"))
	require.Zero(t, plan("plan.procs=2", "train.buddy=off"))
	code, out := runIn(t, dir, nil, "plan", "run.yaml", "plan.procs=2", "train.buddy=3")
	require.Zero(t, code, out)
	require.Contains(t, out, "made about every 3 step(s)")
}

// losses are those of a run's metrics, a line a step.
func losses(t *testing.T, dir string) (out []string) {
	for _, m := range metrics(t, dir) {
		out = append(out, fmt.Sprint(m.Step, m.Loss, m.GradNorm))
	}
	return out
}
