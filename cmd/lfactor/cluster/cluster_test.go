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
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/topology/machine"
)

// clusterHome gives a test a home for clusters of its own, and takes down what it leaves there, whatever state that is in.
func clusterHome(t *testing.T, dir string, names ...string) []string {
	t.Helper()
	env := []string{"LFACTOR_HOME=" + filepath.Join(dir, "home")}
	t.Cleanup(func() {
		for _, n := range names {
			if t.Failed() {
				logs, _ := filepath.Glob(filepath.Join(dir, "home", "clusters", n, "*", "log"))
				more, _ := filepath.Glob(filepath.Join(dir, "home", "clusters", n, "agents", "*", "log"))
				for _, f := range append(logs, more...) {
					text, _ := os.ReadFile(f)
					t.Logf("%s:\n%s", f, text)
				}
			}
			_, _ = runIn(t, dir, env, "cluster", "down", n)
		}
		endAll(t, dir)
	})
	return env
}

// endAll kills every process that was told of a directory by its command line or its environment. Agents and heads start
// each other again: it does so until there are none.
func endAll(t *testing.T, dir string) {
	t.Helper()
	require.Eventually(t, func() bool {
		none := true
		all, err := filepath.Glob("/proc/[0-9]*")
		require.NoError(t, err)
		for _, p := range all {
			cmd, _ := os.ReadFile(filepath.Join(p, "cmdline")) // it may be over
			env, _ := os.ReadFile(filepath.Join(p, "environ"))
			if pid, _ := strconv.Atoi(filepath.Base(p)); pid != os.Getpid() && (bytes.Contains(cmd, []byte(dir+"/")) ||
				bytes.Contains(env, []byte(dir+"/"))) {
				none = false
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		return none
	}, time.Minute, 10*time.Millisecond, "processes of %s do not end", dir)
}

// leftovers lists the processes whose command line names a directory.
func leftovers(t *testing.T, dir string) (out []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, f := range all {
		text, err := os.ReadFile(f)
		// one that nobody has reaped has no command line
		if err == nil && bytes.Contains(text, []byte(dir)) {
			out = append(out, f+" "+strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return out
}

// TestClusterSame: a run on a cluster of local agents has the losses of a run without one, to the last
// bit; its output comes to the terminal, its exit code is the command's; and nothing of the cluster is
// left after down.
func TestClusterSame(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", "train.steps=8")
	require.Zero(t, code, out)
	alone := metrics(t, dir)
	require.Len(t, alone, 8)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "run")))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "ckpt")))
	env := clusterHome(t, dir, "test")
	code, out = runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", "test")
	require.Zero(t, code, out)
	code, out = runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", "test")
	require.Equal(t, 5, code, "a second cluster of one name: %s", out)
	code, out = runIn(t, dir, env, "train", "run.yaml", "--cluster", "test", "train.steps=8")
	require.Zero(t, code, out)
	require.Contains(t, out, "step 8/8")
	same(t, alone, metrics(t, dir))
	code, out = runIn(t, dir, env, "train", "run.yaml", "--cluster", "test", "train.steps=8",
		"data.paths=[nowhere]")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "nowhere")
	code, out = runIn(t, dir, env, "cluster", "status", "-o", "json")
	require.Zero(t, code, out)
	var now head.Status
	require.NoError(t, json.Unmarshal([]byte(out), &now), out)
	require.Len(t, now.Hosts, 2)
	require.Equal(t, "ready", now.Hosts[1].State)
	code, out = runIn(t, dir, env, "cluster", "down")
	require.Zero(t, code, out)
	require.Empty(t, leftovers(t, filepath.Join(dir, "home")))
	left, err := os.ReadDir(filepath.Join(dir, "home", "clusters"))
	require.NoError(t, err)
	require.Empty(t, left)
	code, out = runIn(t, dir, env, "cluster", "status")
	require.Equal(t, 5, code, out)
}

func same(t *testing.T, want, got []run.Metrics) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, a := range want {
		require.Equal(t, a.Loss, got[i].Loss, "step %d", i+1)
		require.Equal(t, a.GradNorm, got[i].GradNorm, "step %d", i+1)
	}
}

// rigged is a cluster on hosts of namespaces, whose head is on the first of them.
type rigged struct {
	*Rig
	t      *testing.T
	dir    string // that all hosts see, with a run and the binary
	binary string
	joined []*exec.Cmd
}

// onRig makes n hosts into a cluster: the first by `up`, the others by tokens.
func onRig(t *testing.T, dir string, n int) *rigged {
	t.Helper()
	r := &rigged{Rig: newRig(t, n, dir), t: t, dir: dir, binary: filepath.Join(dir, "lfactor")}
	clitest.InstallBoth(t, r.binary)
	r.on(0, "cluster", "up", "--local", "1", "--name", "rig", "--addr", r.Hosts[0].Addr)
	for i := range r.Hosts[1:] {
		r.join(i + 1)
	}
	r.waitReady(n)
	return r
}

// on runs lfactor on a host and returns what it writes.
func (r *rigged) on(host int, args ...string) string {
	r.t.Helper()
	return r.onWith(host, nil, args...)
}

// onWith is on with more environment.
func (r *rigged) onWith(host int, env []string, args ...string) string {
	r.t.Helper()
	c := r.Hosts[host].In(r.dir, slices.Concat([]string{"env"}, env, []string{r.binary}, args)...)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	require.NoError(r.t, err, "%v: %s%s", args, out, errs.String())
	return string(out) + errs.String()
}

// join takes a host in with a token; the result is the token.
func (r *rigged) join(host int) string {
	r.t.Helper()
	token := strings.TrimSpace(r.on(0, "cluster", "token"))
	c := r.Hosts[host].Command(r.binary, "cluster", "join", "-")
	var said bytes.Buffer
	c.Stdin, c.Stderr = strings.NewReader(token), &said
	require.NoError(r.t, c.Start())
	r.joined = append(r.joined, c)
	r.t.Cleanup(func() {
		r.Hosts[host].Kill()
		_ = c.Wait() // a second time where the test has waited
		if r.t.Failed() {
			r.t.Log(said.String())
		}
	})
	return token
}

// waitReady waits until so many hosts are ready.
func (r *rigged) waitReady(n int) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		return strings.Count(r.on(0, "cluster", "status"),
			"│ ready") == n
	}, 2*time.Minute,
		50*time.Millisecond)
}

// waitEvent waits for an event behind those that were there before.
func (r *rigged) waitEvent(before, text string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		return strings.Contains(strings.TrimPrefix(r.on(0, "events"), before), text)
	}, 2*time.Minute, 50*time.Millisecond, text)
}

// TestClusterHosts: hosts that were joined by tokens give the losses of one host to the last bit, also
// when one of them is killed with everything on it: what it had goes to a spare one.
func TestClusterHosts(t *testing.T) {
	t.Parallel()
	const steps = 60
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", fmt.Sprint("train.steps=", steps))
	require.Zero(t, code, out)
	alone, want := metrics(t, dir), stateOf(t, dir, steps)
	afresh := func() {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "run")))
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "ckpt")))
	}
	afresh()
	r := onRig(t, dir, 3)
	out = r.on(0, "train", "run.yaml", "--cluster", "rig", "plan.procs=2", fmt.Sprint("train.steps=", steps))
	require.Contains(t, out, fmt.Sprintf("step %d/%d", steps, steps))
	same(t, alone, metrics(t, dir))
	require.Equal(t, want, stateOf(t, dir, steps))

	afresh()
	r.onWith(0, clitest.Gated(t, dir, steps/2), "train", "run.yaml", "--cluster", "rig", "--detach",
		"plan.procs=2", fmt.Sprint("train.steps=", steps))
	require.Eventually(t, func() bool { return clitest.Steps(t, dir) > 2 }, 2*time.Minute, time.Millisecond,
		"the run does not start")
	r.Hosts[1].Kill()
	clitest.Gate(t, dir, clitest.Open)
	out = r.on(0, "attach")
	require.Equal(t, want, stateOf(t, dir, steps), out)
	require.Contains(t, out, "recovered after")
	events := r.on(0, "events")
	require.Contains(t, events, "process 1 of job 2 moves from h2 to h3")
	t.Log(events)

	require.Contains(t, r.on(0, "cluster", "down"), "nothing of it is left")
	require.NoError(t, r.joined[1].Wait(), "the cluster's end is the agent's")
}

// TestClusterTokens: a token is good for one host; what is wrong with another is said in one line, with
// exit code 5.
func TestClusterTokens(t *testing.T) {
	dir := t.TempDir()
	env := clusterHome(t, dir, "a", "b")
	for _, n := range []string{"a", "b"} {
		code, out := runIn(t, dir, env, "cluster", "up", "--local", "1", "--name", n)
		require.Zero(t, code, out)
	}
	token := func(cluster string) string {
		code, out, errs := streamsEnv(t, dir, env, "cluster", "token", cluster)
		require.Zero(t, code, errs)
		return strings.TrimSpace(out)
	}
	join := func(token string, args ...string) (int, string) {
		code, out := runIn(t, dir, env, append([]string{"cluster", "join", token}, args...)...)
		require.LessOrEqual(t, strings.Count(out, "\n"), 1, out)
		return code, out
	}
	a, b := token("a"), token("b")
	mixed := a[:strings.Index(a, "@")] + b[strings.Index(b, "@"):] // the secret of a, sent to b
	used := token("a")
	code, out := join(used, "--name", "h1")
	require.Equal(t, 5, code, out)
	require.Contains(t, out, "has a host h1 already")
	for _, c := range []struct {
		name, token, want string
		code              int
	}{
		{"of another cluster", mixed, "not the cluster of this token", 5},
		{"used", used, "was used", 5},
		{"invented", strings.Replace(a, a[70:90], strings.Repeat("0", 20), 1), "is unknown", 5},
		{"torn", a[:80], "is no join token", 2},
		{"nobody there", a[:strings.Index(a, "@")] + "@127.0.0.1:1", "does not answer", 5},
	} {
		code, out := join(c.token, "--name", "new")
		require.Equal(t, c.code, code, "%s: %s", c.name, out)
		require.Contains(t, out, c.want, c.name)
	}
	code, out = runIn(t, dir, env, "events", "--cluster", "a")
	require.Zero(t, code, out)
	require.Contains(t, out, "may not join", "refusals are events")
	require.NotContains(t, out, used[70:110], "no secret is written down")
}

// TestClusterKilled: whatever is killed, or stopped, while a run is on a cluster, a worker, an agent,
// the head or the process that leads, the run ends with the weights, optimizer state and ledger of one
// that nobody disturbed.
func TestClusterKilled(t *testing.T) {
	t.Parallel()
	quiet := tinyRun(t)
	const steps = 100
	code, out := runIn(t, quiet, nil, "train", "run.yaml", "-q", fmt.Sprint("train.steps=", steps))
	require.Zero(t, code, out)
	want := stateOf(t, quiet, steps)
	dir := tinyRun(t)
	env := clusterHome(t, dir, "test")
	code, out = runIn(t, dir, env, "cluster", "up", "--local", "3", "--name", "test")
	require.Zero(t, code, out)
	now := func() (s head.Status) {
		code, out, errs := streamsEnv(t, dir, env, "cluster", "status", "-o", "json")
		require.Zero(t, code, errs)
		require.NoError(t, json.Unmarshal([]byte(out), &s))
		return s
	}
	proc := func(n int) func() int {
		return func() int {
			jobs := now().Jobs
			return jobs[len(jobs)-1].Procs[n].Pid
		}
	}
	held := func(name ...string) func() int {
		return func() int {
			return machine.Holder(filepath.Join(append([]string{dir, "home", "clusters", "test"},
				name...)...))
		}
	}
	for _, c := range []struct {
		name   string
		victim func() int
		signal syscall.Signal
		said   string // event
	}{
		{"worker", proc(1), syscall.SIGKILL, "was killed by signal 9"},
		{"stopped worker", proc(1), syscall.SIGSTOP,
			"process 1 of job 2 on h2 is started again by its leader"},
		{"agent", held("agents", "h2"), syscall.SIGKILL,
			"the agent of host h2 has ended; it is started again"},
		{"head", held("head"), syscall.SIGKILL, "head up at"},
		{"leader", proc(0), syscall.SIGKILL, "another takes its place"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "run")))
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "ckpt")))
			before := len(eventsOf(t, dir, env))
			cmd := exec.Command(builtHead(t), "train", "run.yaml", "--cluster", "test", "plan.procs=2",
				fmt.Sprint("train.steps=", steps))
			var out bytes.Buffer
			cmd.Dir, cmd.Stderr, cmd.Stdout = dir, &out, &out
			cmd.Env = slices.Concat(os.Environ(), env, clitest.Gated(t, dir, steps/2))
			require.NoError(t, cmd.Start())
			require.Eventually(t, func() bool { return clitest.Steps(t, dir) > 2 }, 2*time.Minute,
				time.Millisecond, "the run does not start")
			require.NoError(t, syscall.Kill(c.victim(), c.signal))
			clitest.Gate(t, dir, clitest.Open)
			require.NoError(t, cmd.Wait(), out.String())
			require.Equal(t, want, stateOf(t, dir, steps), out.String())
			var text strings.Builder
			for _, e := range eventsOf(t, dir, env)[before:] {
				fmt.Fprintln(&text, e.Time.Format("15:04:05.000"), e.Kind, e.Text)
			}
			require.Contains(t, text.String(), c.said)
			t.Logf("%s%s", text.String(),
				strings.Join(regexp.MustCompile("(?m)^!.*$|^.*recovered.*$").FindAllString(out.String(),
					-1), "\n"))
		})
	}
}

// eventsOf are the events of the cluster so far.
func eventsOf(t *testing.T, dir string, env []string) (all []head.Event) {
	t.Helper()
	var code int
	require.Eventually(t, func() bool {
		var out string
		code, out, _ = streamsEnv(t, dir, env, "events", "-o", "json")
		return code == 0 && json.Unmarshal([]byte(out), &all) == nil
	}, 2*time.Minute, 50*time.Millisecond)
	return all
}

// verbs runs lfactor against a cluster of two local agents.
type verbs struct {
	t   *testing.T
	dir string
	env []string
}

func newVerbs(t *testing.T) verbs {
	dir := tinyRun(t)
	v := verbs{t, dir, clusterHome(t, dir, "test")}
	v.verb(0, "cluster", "up", "--local", "2", "--name", "test")
	return v
}

// verb runs lfactor, which has to end with this code, and returns all it writes.
func (v verbs) verb(want int, args ...string) string {
	v.t.Helper()
	code, out := runIn(v.t, v.dir, v.env, args...)
	require.Equal(v.t, want, code, "%v: %s", args, out)
	return out
}

// json runs lfactor and reads what it writes to stdout.
func (v verbs) json(to any, args ...string) {
	v.t.Helper()
	code, out, errs := streamsEnv(v.t, v.dir, v.env, append(args, "-o", "json")...)
	require.Zero(v.t, code, errs)
	require.NoError(v.t, json.Unmarshal([]byte(out), to), out)
}

// TestJobVerbs: what is said of jobs, in text and as JSON; a queue with its reasons; stop; drain, which
// moves a job.
func TestJobVerbs(t *testing.T) {
	t.Parallel()
	v := newVerbs(t)
	v.verb(0, "train", "run.yaml", "--cluster", "test", "--detach", "train.steps=100000",
		"checkpoint.interval=0")
	v.verb(0, "train", "run.yaml", "--cluster", "current", "--detach", "train.steps=2", "log.dir=run2",
		"checkpoint.dir=ckpt2")
	var jobs []head.Job
	v.json(&jobs, "ps")
	require.Len(t, jobs, 2)
	require.Equal(t, "waits for 2 hosts; 0 are free", jobs[1].Why)
	require.Contains(t, v.verb(0, "ps"), "waits for 2 hosts; 0 are free")
	v.verb(2, "attach", "77")
	require.Eventually(t, func() bool {
		return strings.Contains(v.verb(0, "logs", "1", "--proc", "0"),
			"step 2/")
	}, 2*time.Minute,
		50*time.Millisecond)
	var why host.Diagnosis
	v.json(&why, "why", "1", "--cluster", "test")
	require.NotEmpty(t, why.Chain, "the coordinator and whom it waits for")
	require.Contains(t, v.verb(0, "stop", "1"), "ends after the step under way")
	require.Contains(t, v.verb(0, "attach", "1"), "durable", "a stop saves")
	v.verb(0, "attach", "2")
	require.Contains(t, v.verb(0, "logs", "2"), "h1 0│ ")
	gated := v
	gated.env = slices.Concat(v.env, clitest.Gated(t, v.dir, 75))
	gated.verb(0, "train", "run.yaml", "--cluster", "test", "--detach", "train.steps=150", "log.dir=run3",
		"checkpoint.dir=ckpt3")
	require.Eventually(t, func() bool {
		return strings.Contains(v.verb(0, "logs", "3", "--proc", "0"),
			"step 2/")
	}, 2*time.Minute,
		20*time.Millisecond)
	v.verb(0, "cluster", "drain", "h2")
	clitest.Gate(t, v.dir, 125) // it is to end behind a step, and not by itself before it has heard of that
	waitEvent(t, v.dir, v.env, 1, "job 3 starts on [h1]")
	clitest.Gate(t, v.dir, clitest.Open)
	require.Contains(t, v.verb(0, "attach", "3"), "step 150/150")
	v.verb(0, "cluster", "drain", "h2", "--back")
	var lines []map[string]any
	v.json(&lines, "logs", "2", "--host", "h1")
	require.NotEmpty(t, lines)

	v.verb(2, "train", "run.yaml", "--detach")
}

// TestClusterVerbs: logs, drain, remove, backup and restore.
func TestClusterVerbs(t *testing.T) {
	v := newVerbs(t)
	require.Contains(t, v.verb(0, "cluster", "logs"), "head up at")
	require.Contains(t, v.verb(0, "cluster", "logs", "h1"), "joined as h1")
	v.verb(2, "cluster", "logs", "h9")
	v.verb(0, "cluster", "user", "add", "eve", "eves/clusters/test")
	v.verb(0, "cluster", "backup", "state")
	v.verb(0, "cluster", "user", "revoke", "eve")
	require.Contains(t, v.verb(0, "cluster", "drain", "h1"), "takes no new process")
	require.Contains(t, v.verb(0, "cluster", "status"), "drained")
	v.verb(0, "cluster", "drain", "h1", "--back")
	v.verb(2, "cluster", "drain", "h9")
	v.verb(0, "cluster", "drain", "h1")
	require.NoError(t, os.WriteFile(filepath.Join(v.dir, "bad"), []byte("no backup"), 0o600))
	require.Contains(t, v.verb(6, "cluster", "restore", "bad"), "is not a backup of a cluster")
	for range 2 { // the second time brings no term back that agents have met
		v.verb(0, "cluster", "restore", "state")
		require.Equal(t, 2, strings.Count(v.verb(0, "cluster", "status"), "│ h"))
	}
	require.Eventually(t, func() bool { // once in the backup's events, and again where its agent was away for long
		return slices.ContainsFunc(eventsOf(t, v.dir, v.env), func(e head.Event) bool {
			return strings.Contains(e.Text, "host h1 joined")
		})
	}, 2*time.Minute, 20*time.Millisecond)
	code, out := runIn(t, v.dir, []string{"LFACTOR_HOME=" + filepath.Join(v.dir, "eves")}, "cluster", "status", "test")
	require.NotZero(t, code, "a certificate that was revoked after the backup: %s", out)
	require.NotContains(t, v.verb(0, "cluster", "status"), "drained", "the backup is older than that")
	require.Contains(t, v.verb(0, "cluster", "remove", "h2"), "is removed")
	require.NotContains(t, v.verb(0, "cluster", "status"), "h2")
	// also one that was coming back from the head that was restored, and heard nothing of it
	require.Eventually(t, func() bool {
		return !strings.Contains(strings.Join(leftovers(t, v.dir), "\n"), "/agents/h2")
	}, time.Minute, 10*time.Millisecond, "the agent of the removed host has not ended")
	require.Contains(t, v.verb(3, "train", "run.yaml", "--cluster", "test", "plan.procs=4", "--hosts", "2"),
		"wants 2 hosts and the cluster has 1")
	t.Log(v.verb(0, "events"))
	v.verb(0, "cluster", "down")
	require.Empty(t, leftovers(t, v.dir))
}

// TestDemoCluster: the demo kills an agent and the head of its cluster, ends with the weights of its
// quiet run, and leaves no process.
func TestDemoCluster(t *testing.T) {
	if !*long {
		t.Skip("left out: a minute of training; add -long")
	}
	dir := t.TempDir()
	code, out := runIn(t, dir, nil, "demo", "--cluster", "--dir", "d")
	require.Zero(t, code, out)
	require.Contains(t, out, "recovered after")
	require.Contains(t, out, "equal those of the quiet run, bit for bit")
	require.Equal(t, 2, strings.Count(out, " head up at "), out)
	require.Empty(t, leftovers(t, dir))
}
