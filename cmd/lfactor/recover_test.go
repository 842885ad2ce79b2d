package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// recovered is a run in several processes of which some were killed.
type recovered struct {
	out   string
	state state
	back  int // how often it recovered
}

// strike is what happens to a process of a run: a signal, so long behind a step.
type strike struct {
	step   int
	after  time.Duration
	sig    syscall.Signal
	victim func(kids []int) int
}

// Steps of a run that is struck, and how many of them it takes at most behind the step of the strike before
// that has been: however slow a test is, the run is not over, and however quick, it is at work.
const (
	struckSteps = 60
	struckAhead = 15
)

// trainKilled trains, and strikes a process, or none.
func trainKilled(t *testing.T, dir string, hit *strike, args ...string) recovered {
	t.Helper()
	c := exec.Command(built(t), append([]string{"train", "run.yaml", fmt.Sprint("train.steps=", struckSteps)},
		args...)...)
	var out bytes.Buffer
	c.Dir, c.Stderr, c.Stdout = dir, &out, &out
	if hit != nil {
		require.Less(t, hit.step+struckAhead, struckSteps)
		c.Env = append(os.Environ(), clitest.Gated(t, dir, hit.step+struckAhead)...)
	}
	require.NoError(t, c.Start())
	defer func() { _ = c.Process.Kill() }()
	if hit != nil {
		require.Eventually(t, func() bool { return clitest.Steps(t, dir) >= hit.step }, 4*time.Minute,
			time.Millisecond, "the run does not get to step %d", hit.step)
		<-time.After(hit.after)
		kids := children(t, c.Process.Pid)
		require.NotEmpty(t, kids)
		require.NoError(t, syscall.Kill(hit.victim(kids), hit.sig))
		clitest.Gate(t, dir, clitest.Open)
	}
	require.NoError(t, c.Wait(), out.String())
	return recovered{out.String(), stateOf(t, dir, struckSteps),
		len(regexp.MustCompile(`recovered after`).FindAllString(out.String(), -1))}
}

// firstOf is the victim of a run that has one process beside the one that leads.
func firstOf(kids []int) int { return kids[0] }

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
			want := trainKilled(t, quiet, nil, c.args...)
			back, from := 0, 0
			for i := range n {
				rng := rand.New(rand.NewPCG(uint64(i), 77))
				dir := tinyRun(t)
				hit := strike{1 + rng.IntN(40), time.Duration(rng.IntN(10_000)) * time.Microsecond,
					syscall.SIGKILL, func(kids []int) int { return kids[rng.IntN(len(kids))] }}
				if i == 0 {
					hit.step = 30 // there is a checkpoint, and there are copies
				}
				got := trainKilled(t, dir, &hit, c.args...)
				require.Equal(t, want.state, got.state, got.out)
				require.Equal(t, losses(t, quiet), losses(t, dir), got.out)
				back += got.back
				from += strings.Count(got.out, "from "+c.from)
			}
			t.Logf("%d of %d runs recovered, %d from %s", back, n, from, c.from)
			require.GreaterOrEqual(t, back, n)
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
	want := trainKilled(t, quiet, nil, "plan.procs=2")
	got := trainKilled(t, dir, &strike{step: 5, sig: syscall.SIGSTOP, victim: firstOf}, "plan.procs=2")
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

// TestPlanCopies: plan says what recovery keeps in memory, and how often, where there is more than one process.
func TestPlanCopies(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	plan := func(args ...string) (p struct {
		Bytes int64 `json:"copy_bytes"`
		Every int64 `json:"copy_every"`
		Held  int64 `json:"copy_held"`
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
	zero := plan("plan.procs=4", "plan.zero=1")
	t.Logf("of %d bytes a process holds up to %d", zero.Bytes, zero.Held)
	require.Greater(t, zero.Held, 5*zero.Bytes, "two of its own, two of its buddy's and two of the process that leads")
	require.LessOrEqual(t, zero.Held, 6*zero.Bytes)
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
