package cluster_test

import (
	"bytes"
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

	"encoding/json"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestClusterLeaderKilled: the process that leads a run is killed, and later again together with another.
// Each time a new one takes the lead over; a process that was not killed keeps its number to the end. The
// run does not begin again, and its losses, weights, optimizer state and ledger are those of one that nobody
// disturbed. With train.restarts=1 it may be lost twice, since steps are taken in between.
func TestClusterLeaderKilled(t *testing.T) {
	t.Parallel()
	const steps = 120
	quiet := tinyRun(t)
	train := []string{"train", "run.yaml", "plan.procs=4", "checkpoint.interval=25",
		"train.eval_interval=40", "train.restarts=1",
		fmt.Sprint("train.steps=", steps)}
	code, out := runIn(t, quiet, nil, append(train, "-q")...)
	require.Zero(t, code, out)
	alone, want := metrics(t, quiet), stateOf(t, quiet, steps)
	dir := tinyRun(t)
	env := clusterHome(t, dir, "test")
	code, out = runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", "test")
	require.Zero(t, code, out)
	procs := func() []head.Proc {
		var s head.Status
		code, out, errs := streamsEnv(t, dir, env, "cluster", "status", "-o", "json")
		require.Zero(t, code, errs)
		require.NoError(t, json.Unmarshal([]byte(out), &s))
		return s.Jobs[0].Procs
	}
	cmd := exec.Command(builtHead(t), append(train, "--cluster", "test")...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr, cmd.Stdout = dir, &said, &said
	cmd.Env = slices.Concat(os.Environ(), env, clitest.Gated(t, dir, 40))
	require.NoError(t, cmd.Start())
	at := func(step int) {
		t.Helper()
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
			return err == nil && bytes.Contains(text, fmt.Appendf(nil, `"step":%d,`, step))
		}, 2*time.Minute, time.Millisecond, "step %d is not reached: %s", step, said.String())
	}
	at(5)
	first := procs()
	require.NoError(t, syscall.Kill(first[0].Pid, syscall.SIGKILL))
	clitest.Gate(t, dir, 80)
	at(45)
	second := procs()
	require.Equal(t, first[1:], second[1:], "the other processes are the same")
	require.NotEqual(t, first[0].Pid, second[0].Pid)
	for _, p := range second[:2] {
		require.NoError(t, syscall.Kill(p.Pid, syscall.SIGKILL))
	}
	clitest.Gate(t, dir, 100)
	at(90)
	third := procs()
	require.Equal(t, first[2:], third[2:], "the other processes are the same")
	clitest.Gate(t, dir, clitest.Open)
	require.NoError(t, cmd.Wait(), said.String())
	same(t, alone, metrics(t, dir))
	require.Equal(t, want, stateOf(t, dir, steps), said.String())
	require.NotContains(t, said.String(), "verified", "the run does not begin again")
	var text strings.Builder
	for _, e := range eventsOf(t, dir, env) {
		fmt.Fprintln(&text, e.Time.Format("15:04:05.000"), e.Kind, e.Text)
	}
	require.Equal(t, 2, strings.Count(text.String(), "another takes its place"), text.String())
	logs, err := os.ReadFile(filepath.Join(dir, "run", "log.jsonl"))
	require.NoError(t, err)
	t.Logf("%s%s%s", text.String(), strings.Join(regexp.MustCompile("(?m)^!.*$|^.*recovered.*$|^from.*$").
		FindAllString(said.String(), -1), "\n"), logs)
}

// TestClusterMemoryFirst: every file of the checkpoints is damaged when the process that leads is killed. The others
// hold the whole state, and the run ends with the losses and the state of one that nobody disturbed.
func TestClusterMemoryFirst(t *testing.T) {
	t.Parallel()
	const steps = 60
	quiet := tinyRun(t)
	train := []string{"train", "run.yaml", "plan.procs=4", "checkpoint.interval=25", fmt.Sprint("train.steps=", steps)}
	code, out := runIn(t, quiet, nil, append(train, "-q")...)
	require.Zero(t, code, out)
	alone, want := metrics(t, quiet), stateOf(t, quiet, steps)
	dir := tinyRun(t)
	env := clusterHome(t, dir, "test")
	code, out = runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", "test")
	require.Zero(t, code, out)
	cmd := exec.Command(builtHead(t), append(train, "--cluster", "test")...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr, cmd.Stdout = dir, &said, &said
	cmd.Env = slices.Concat(os.Environ(), env, clitest.Gated(t, dir, 40))
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return clitest.Steps(t, dir) >= 40 }, 2*time.Minute, time.Millisecond, "no step 40")
	latest := filepath.Join(dir, "ckpt", "latest")
	require.Eventually(t, func() bool { _, err := os.Stat(latest); return err == nil }, 2*time.Minute, time.Millisecond)
	files, err := filepath.Glob(filepath.Join(dir, "ckpt", "step-*", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		require.NoError(t, os.WriteFile(name, []byte("damaged"), 0o600))
	}
	var s head.Status
	code, out, errs := streamsEnv(t, dir, env, "cluster", "status", "-o", "json")
	require.Zero(t, code, errs)
	require.NoError(t, json.Unmarshal([]byte(out), &s))
	require.NoError(t, syscall.Kill(s.Jobs[0].Procs[0].Pid, syscall.SIGKILL))
	clitest.Gate(t, dir, clitest.Open)
	require.NoError(t, cmd.Wait(), said.String())
	require.Contains(t, said.String(), "Nothing durable can be read")
	same(t, alone, metrics(t, dir))
	require.Equal(t, want, stateOf(t, dir, steps), said.String())
}

// TestClusterLeaderStopped: the process that leads a run is stopped and does not end: nobody watches it
// but its agent, which gives it up after two seconds. Another takes the lead over, and the run ends with
// the weights, optimizer state and ledger of one that nobody disturbed.
func TestClusterLeaderStopped(t *testing.T) {
	t.Parallel()
	const steps = 60
	quiet := tinyRun(t)
	train := []string{"train", "run.yaml", "plan.procs=2", "checkpoint.interval=25",
		fmt.Sprint("train.steps=", steps)}
	code, out := runIn(t, quiet, nil, append(train, "-q")...)
	require.Zero(t, code, out)
	v := newVerbs(t)
	gated := v
	gated.env = slices.Concat(v.env, clitest.Gated(t, v.dir, steps/2))
	gated.verb(0, append(train, "--cluster", "test", "--detach")...)
	var s head.Status
	for until := time.Now().Add(2 * time.Minute); ; {
		v.json(&s, "cluster", "status")
		if len(s.Jobs) == 1 && len(s.Jobs[0].Procs) == 2 && s.Jobs[0].Procs[0].Pid > 0 {
			break
		}
		require.True(t, time.Now().Before(until), "%+v", s)
	}
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(v.dir, "run", "metrics.jsonl"))
		return err == nil && bytes.Contains(text, []byte(`"step":5,`))
	}, 2*time.Minute, time.Millisecond)
	require.NoError(t, syscall.Kill(s.Jobs[0].Procs[0].Pid, syscall.SIGSTOP))
	clitest.Gate(t, v.dir, clitest.Open)
	require.Contains(t, v.verb(0, "attach", "1"), fmt.Sprintf("step %d/%d", steps, steps))
	require.Equal(t, stateOf(t, quiet, steps), stateOf(t, v.dir, steps))
	require.Regexp(t, `process 0 of job 1, which leads it, said nothing for 2\S*s, being stopped \(by a signal or from `+
		`the terminal\), and was killed by signal 9 \(killed\) on h\d; another takes its place`, v.verb(0, "events"))
}
