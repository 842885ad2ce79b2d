package cluster_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/topology/machine"
)

// movedClock is added to Go's package time: the wall clock of a process is moved by the seconds that the file of its
// number in a directory names, or that of all.
const movedClock = `
var movedBy int64

func init() {
	dir, ok := syscall.Getenv("LFACTOR_TEST_CLOCKS")
	if !ok {
		return
	}
	digits := ""
	for pid := syscall.Getpid(); pid > 0; pid /= 10 {
		digits = string(rune('0'+pid%10)) + digits
	}
	readMoved(dir, digits)
	go func() { // Now may not: timers call it on stacks of the system's
		for {
			Sleep(10 * Millisecond)
			readMoved(dir, digits)
		}
	}()
}

func readMoved(dir, name string) {
	fd, err := open(dir + "/" + name)
	if err != nil {
		fd, err = open(dir + "/all")
	}
	if err != nil {
		return
	}
	var b [32]byte
	n, _ := read(fd, b[:])
	closefd(fd)
	sign, by := int64(1), int64(0)
	for _, c := range b[:max(0, n)] {
		if c == '-' {
			sign = -1
		}
		if c >= '0' && c <= '9' {
			by = 10*by + int64(c-'0')
		}
	}
	movedBy = sign * by
}
`

// movedBinary builds lfactor with clocks that can be moved, which takes some minutes the first time.
func movedBinary(t *testing.T, dir string) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	name := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	now := "	sec, nsec, mono := runtimeNow()\n"
	require.Equal(t, 1, strings.Count(string(text), now+"	if mono == 0"), "Go's package time has another Now")
	moved := strings.Replace(string(text), now+"	if mono == 0", now+"	sec += movedBy\n	if mono == 0", 1)
	moved = strings.Replace(moved, "import (", "import (\n\t\"syscall\"", 1) + movedClock
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{name: filepath.Join(dir, "time.go")}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "time.go"), []byte(moved), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	for _, program := range []string{"lfactor", "lfactor-head"} {
		out, err := exec.Command("go", "build", "-trimpath", "-overlay", filepath.Join(dir, "overlay.json"), "-o",
			filepath.Join(dir, program), "github.com/lfactor/lfactor/cmd/"+program).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return filepath.Join(dir, "lfactor")
}

// clocks is a cluster of three local agents, each process of which has a clock of its own.
type clocks struct {
	t           *testing.T
	dir, binary string
	env         []string
	said        *bytes.Buffer // by the run
}

func (c *clocks) run(args ...string) (string, error) {
	cmd := exec.Command(c.binary, args...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), c.env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		out = append(out, errs.Bytes()...)
	}
	return string(out), err
}

func (c *clocks) status() (s head.Status) {
	c.t.Helper()
	var all bytes.Buffer
	require.Eventually(c.t, func() bool {
		out, err := c.run("cluster", "status", "-o", "json")
		all.Reset()
		fmt.Fprint(&all, out, err)
		s = head.Status{}
		return err == nil && json.Unmarshal([]byte(out), &s) == nil && len(s.Jobs) == 1 && len(s.Jobs[0].Procs) == 2 &&
			!slices.ContainsFunc(s.Jobs[0].Procs, func(p head.Proc) bool { return p.Over || p.Pid == 0 })
	}, time.Minute, 50*time.Millisecond, "%v\n%s", &all, c.said)
	return s
}

// move moves the clock of a process, or with 0 those of all that have none of their own.
func (c *clocks) move(pid int, by time.Duration) {
	c.t.Helper()
	name := filepath.Join(c.dir, "clocks", fmt.Sprint(pid))
	if pid == 0 {
		name = filepath.Join(c.dir, "clocks", "all")
	}
	require.NoError(c.t, os.WriteFile(name+".new", fmt.Append(nil, int(by.Seconds())), 0o600))
	require.NoError(c.t, os.Rename(name+".new", name))
}

// agent is the process of a host's agent, and until when its certificate is good.
func (c *clocks) agent(host string) (pid int, until time.Time) {
	c.t.Helper()
	dir := filepath.Join(c.dir, "home", "clusters", "test", "agents", host)
	id, err := trust.Load(dir, nil)
	require.NoError(c.t, err)
	return machine.Holder(dir), id.Expiry()
}

// TestClusterClocks: while a run trains, the clocks of its cluster jump: one process's forward and back by up to an
// hour, then those of all by half a day and again, so that the certificates with which the run began have ended, and by
// three days at once, so that those of agents have that are started again. Each time processes are killed, and the run ends
// with the weights, state and ledger of one that nobody disturbed. Agents that are away for longer say what mends that.
func TestClusterClocks(t *testing.T) {
	longOnly(t, "clocks that jump in single processes, and certificates that end in the midst of a run, with a binary of its own: "+
		"sim/heads has clocks that jump")
	const steps = 170
	train := []string{"train", "run.yaml", "plan.procs=2", "checkpoint.interval=50", fmt.Sprint("train.steps=", steps)}
	quiet := tinyRun(t)
	code, out := runIn(t, quiet, nil, append(train, "-q")...)
	require.Zero(t, code, out)
	dir := tinyRun(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "clocks"), 0o700))
	c := &clocks{t, dir, movedBinary(t, t.TempDir()), append(clusterHome(t, dir, "test"), "LFACTOR_TEST_CLOCKS="+filepath.Join(dir, "clocks")), &bytes.Buffer{}}
	out, err := c.run("cluster", "up", "--local", "3", "--name", "test")
	require.NoError(t, err, out)
	cmd := exec.Command(c.binary, append(train, "--cluster", "test")...)
	said := c.said
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, said, said
	cmd.Env = slices.Concat(os.Environ(), c.env, clitest.Gated(t, dir, 20))
	require.NoError(t, cmd.Start())
	at := 0
	strike := func(what string, pids func(s head.Status) []int) {
		at += 20
		require.Eventually(t, func() bool { return clitest.Steps(t, dir) >= at }, time.Minute, time.Millisecond, "%s: no step %d: %s",
			what, at, said)
		for _, pid := range pids(c.status()) {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
		clitest.Gate(t, dir, at+20)
	}
	worker := func(s head.Status) []int { return []int{s.Jobs[0].Procs[1].Pid} }
	leader := func(s head.Status) []int { return []int{s.Jobs[0].Procs[0].Pid} }
	s := c.status()
	first, ends := c.agent(s.Jobs[0].Procs[1].Host)
	c.move(first, 50*time.Minute)
	c.move(s.Jobs[0].Procs[0].Pid, -50*time.Minute)
	strike("one clock forward, one back", worker)
	c.move(s.Pid, time.Hour)
	strike("the head's clock forward", leader)
	for half := range 2 {
		c.move(0, time.Duration(13*(half+1))*time.Hour)
		for _, name := range []string{fmt.Sprint(first), fmt.Sprint(s.Jobs[0].Procs[0].Pid), fmt.Sprint(s.Pid)} {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "clocks", name)))
		}
		strike("half a day later", worker)
		for _, h := range c.status().Hosts { // renewed, as half of its life is over
			require.Eventually(t, func() bool {
				_, until := c.agent(h.Name)
				return until.After(ends.Add(time.Duration(12*(half+1)) * time.Hour))
			}, 2*time.Minute, 50*time.Millisecond, "the certificate of %s is not renewed", h.Name)
		}
	}
	strike("certificates have ended", func(s head.Status) []int { return append(worker(s), s.Pid) })
	strike("the head is another", leader)
	agents := func(s head.Status) (pids []int) {
		for _, h := range s.Hosts {
			pid, _ := c.agent(h.Name)
			pids = append(pids, pid)
		}
		c.move(0, (26+72)*time.Hour) // not before: agents that are connected get their certificates
		return pids
	}
	strike("three days later", agents)
	clitest.Gate(t, dir, clitest.Open)
	require.NoError(t, cmd.Wait(), said.String())
	same(t, metrics(t, quiet), metrics(t, dir))
	require.Equal(t, stateOf(t, quiet, steps), stateOf(t, dir, steps), said.String())
	c.putBack()
	c.overdue()
}

// putBack: the head's clock jumps three hours back, so that by it the certificates of agents have not begun. Agents that are
// started again are let in, a new one joins by a token, and a run goes on all of them.
func (c *clocks) putBack() {
	t, s := c.t, head.Status{}
	ready := func(n int) {
		require.Eventually(t, func() bool {
			s = head.Status{}
			out, err := c.run("cluster", "status", "-o", "json")
			return err == nil && json.Unmarshal([]byte(out), &s) == nil && len(s.Hosts) == n &&
				!slices.ContainsFunc(s.Hosts, func(h head.Host) bool { return h.State != "ready" })
		}, time.Minute, 50*time.Millisecond, "%+v", &s)
	}
	out, err := c.run("events")
	require.NoError(t, err)
	require.Contains(t, out, "its certificate had ended, and it gets another")
	ready(3)
	c.move(s.Pid, (26+72-3)*time.Hour)
	for _, h := range []string{"h2", "h3"} {
		pid, _ := c.agent(h)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	token, err := c.run("cluster", "token")
	require.NoError(t, err, token)
	join := exec.Command(c.binary, "cluster", "join", strings.TrimSpace(token), "--name", "h4")
	join.Dir, join.Env = c.dir, append(os.Environ(), c.env...)
	require.NoError(t, join.Start())
	ready(4)
	out, err = c.run("train", "run.yaml", "--cluster", "test", "plan.procs=4", "train.steps=4", "log.dir=run2", "checkpoint.dir=ckpt2")
	require.NoError(t, err, out)
	require.NoError(t, join.Process.Signal(syscall.SIGTERM))
	_ = join.Wait() // how it ends does not count
}

// overdue: a month and more later agents get no certificates any more. Their logs and the events say what mends that, and
// it does.
func (c *clocks) overdue() {
	t := c.t
	s := head.Status{}
	ask := func() bool {
		s = head.Status{}
		out, err := c.run("cluster", "status", "-o", "json")
		return err == nil && json.Unmarshal([]byte(out), &s) == nil
	}
	require.Eventually(t, ask, time.Minute, 50*time.Millisecond)
	c.move(0, 60*24*time.Hour)
	require.NoError(t, syscall.Kill(s.Pid, syscall.SIGKILL)) // the next one has a certificate of that day
	was := s.Pid
	log := filepath.Join(c.dir, "home", "clusters", "test", "agents", "h2", "log")
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(text), "the head refuses this agent: its certificate ended on")
	}, 2*time.Minute, 50*time.Millisecond)
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(text), "its certificate ended on"), 2, "it is said once")
	require.Eventually(t, func() bool { return ask() && s.Pid != was }, time.Minute, 50*time.Millisecond)
	out, err := c.run("events")
	require.NoError(t, err)
	require.Contains(t, out, "lfactor cluster add h2")
	pid, _ := c.agent("h2")
	require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
	token, err := c.run("cluster", "token")
	require.NoError(t, err, token)
	join := exec.Command(c.binary, "cluster", "join", strings.TrimSpace(token), "--name", "h2")
	join.Dir, join.Env = c.dir, append(os.Environ(), c.env...)
	require.NoError(t, join.Start())
	require.Eventually(t, func() bool {
		return ask() && slices.ContainsFunc(s.Hosts, func(h head.Host) bool { return h.Name == "h2" && h.State == "ready" })
	}, time.Minute, 50*time.Millisecond)
}
