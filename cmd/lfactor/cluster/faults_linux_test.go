package cluster_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/topology/machine"
)

var (
	faultCount  = flag.Int("faults", 40, "how many single faults TestClusterFaults lets happen, with -long")
	doubleCount = flag.Int("doubles", 12, "how many double faults TestClusterFaults lets happen, with -long")
	faultKinds  = flag.String("kinds", "", "only the faults of TestClusterFaults whose kind has this text")
	faultStays  = flag.Duration("stays", 2*time.Second, "how long a fault of TestClusterFaults stays, if steps wait for its end")
	faultHeads  = flag.Int("heads", 1, "how many heads the cluster of TestClusterFaults has")
)

const (
	faultAgents = 6  // are the hosts of the cluster, two of which are spare
	saveEvery   = 25 // steps: a disk that is slow shows at the next save
)

// faulty is a run on a cluster of local agents to which faults happen.
type faulty struct {
	verbs
	home   string // of the cluster
	client *control.Client
	rng    *rand.Rand
	pace   *strides
	at     time.Time // of the fault that is under way
	from   int       // steps until then
	kinds  map[string]*toll
}

// toll is what faults of a kind have cost.
type toll struct {
	next       []float64 // seconds until the next step
	kept, took float64   // steps that were committed from the fault to the next one, and that would have been
}

// hit is a kind of fault; it may return what makes it good, which comes at once when steps go on, or later.
type hit struct {
	kind string
	do   func(f *faulty, s head.Status) (mend func())
}

var singles = []hit{
	{"worker killed", func(f *faulty, s head.Status) func() { return f.signal(unix.SIGKILL, f.worker(s).Pid) }},
	{"worker hung", func(f *faulty, s head.Status) func() { return f.signal(unix.SIGSTOP, f.worker(s).Pid) }},
	{"leader killed", func(f *faulty, s head.Status) func() { return f.signal(unix.SIGKILL, lead(s).Pid) }},
	{"leader hung", func(f *faulty, s head.Status) func() { return f.signal(unix.SIGSTOP, lead(s).Pid) }},
	{"agent killed", func(f *faulty, s head.Status) func() { return f.signal(unix.SIGKILL, f.agent(f.worker(s))) }},
	{"head killed", func(f *faulty, s head.Status) func() { return f.signal(unix.SIGKILL, s.Pid) }},
	{"head hung", func(f *faulty, s head.Status) func() {
		f.signal(unix.SIGSTOP, s.Pid)
		return func() { f.signal(unix.SIGCONT, s.Pid) }
	}},
	{"disk full", func(f *faulty, s head.Status) func() { return f.full() }},
	{"slow disk", func(f *faulty, s head.Status) func() { return f.slowDisk(f.worker(s), 2*time.Second) }},
	{"worker has no files", func(f *faulty, s head.Status) func() { return f.noFiles(f.worker(s).Pid) }},
	{"leader has no files", func(f *faulty, s head.Status) func() { return f.noFiles(lead(s).Pid) }},
	{"agent has no files", func(f *faulty, s head.Status) func() { return f.noFiles(f.agent(f.worker(s))) }},
	{"head has no files", func(f *faulty, s head.Status) func() { return f.noFiles(s.Pid) }},
}

var doubles = []hit{
	{"worker killed, head killed", func(f *faulty, s head.Status) func() {
		return f.two(f.worker(s).Pid, s.Pid)
	}},
	{"head killed, worker killed", func(f *faulty, s head.Status) func() {
		return f.two(s.Pid, f.worker(s).Pid)
	}},
	{"leader killed, head killed", func(f *faulty, s head.Status) func() { return f.two(lead(s).Pid, s.Pid) }},
	{"worker hung, head killed", func(f *faulty, s head.Status) func() {
		f.signal(unix.SIGSTOP, f.worker(s).Pid)
		f.later()
		return f.signal(unix.SIGKILL, s.Pid)
	}},
	{"leader and buddy killed", func(f *faulty, s head.Status) func() {
		f.signal(unix.SIGKILL, lead(s).Pid)
		return f.signal(unix.SIGKILL, f.worker(s).Pid)
	}},
	{"worker killed, leader killed", func(f *faulty, s head.Status) func() {
		return f.two(f.worker(s).Pid, lead(s).Pid)
	}},
	{"agent killed, head killed", func(f *faulty, s head.Status) func() {
		return f.two(f.agent(f.worker(s)), s.Pid)
	}},
	{"disk full, worker killed", func(f *faulty, s head.Status) func() {
		return f.then(f.full(), f.worker(s))
	}},
	{"disk full, leader killed", func(f *faulty, s head.Status) func() { return f.then(f.full(), lead(s)) }},
	{"slow disk, its worker killed", func(f *faulty, s head.Status) func() {
		w := f.worker(s)
		return f.then(f.slowDisk(w, time.Second), w)
	}},
	{"agent has no files, its worker killed", func(f *faulty, s head.Status) func() {
		w := f.worker(s)
		return f.then(f.noFiles(f.agent(w)), w)
	}},
	{"worker has no files, another killed", func(f *faulty, s head.Status) func() {
		return f.then(f.noFiles(s.Jobs[0].Procs[1].Pid), s.Jobs[0].Procs[2+f.rng.IntN(2)])
	}},
	{"leader has no files, worker killed", func(f *faulty, s head.Status) func() {
		return f.then(f.noFiles(lead(s).Pid), f.worker(s))
	}},
	{"head has no files, worker killed", func(f *faulty, s head.Status) func() {
		return f.then(f.noFiles(s.Pid), f.worker(s))
	}},
}

func lead(s head.Status) head.Proc { return s.Jobs[0].Procs[0] }

// worker is a process that does not lead.
func (f *faulty) worker(s head.Status) head.Proc {
	return s.Jobs[0].Procs[1+f.rng.IntN(len(s.Jobs[0].Procs)-1)]
}

// agent is the process of a host's agent.
func (f *faulty) agent(p head.Proc) int {
	return machine.Holder(filepath.Join(f.home, "agents", p.Host))
}

func (f *faulty) signal(sig syscall.Signal, pid int) func() {
	if pid > 0 { // else it is being started again
		_ = syscall.Kill(pid, sig) // it may have ended
	}
	return nil
}

// later is 0.2 to 0.4 s later.
func (f *faulty) later() {
	<-time.After(200*time.Millisecond + time.Duration(f.rng.IntN(200))*time.Millisecond)
}

// two kills one process and another a little later.
func (f *faulty) two(first, second int) func() {
	f.signal(unix.SIGKILL, first)
	f.later()
	return f.signal(unix.SIGKILL, second)
}

// then kills a process a little after a fault that stops no steps.
func (f *faulty) then(mend func(), p head.Proc) func() {
	f.later()
	f.at, f.from = time.Now(), f.pace.steps()
	f.signal(unix.SIGKILL, p.Pid)
	return mend
}

// noFiles lets a process have no more files than it has.
func (f *faulty) noFiles(pid int) func() {
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // none of one that has ended
	most := uint64(0)
	for _, name := range all {
		fd, err := strconv.ParseUint(filepath.Base(name), 10, 64)
		require.NoError(f.t, err)
		most = max(most, fd+1)
	}
	limit := func(set func(was *unix.Rlimit)) {
		var was unix.Rlimit
		err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was)
		if err == nil {
			set(&was)
			err = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil)
		}
		require.True(f.t, err == nil || errors.Is(err, unix.ESRCH), err)
	}
	var usual uint64
	limit(func(was *unix.Rlimit) { usual, was.Cur = was.Cur, most })
	return func() { limit(func(was *unix.Rlimit) { was.Cur = usual }) }
}

// full leaves no room on the disk of heads and agents.
func (f *faulty) full() func() {
	home := filepath.Join(f.dir, "home")
	size := func(kib string) {
		out, err := exec.Command("mount", "-o", "remount,size="+kib, home).CombinedOutput()
		require.NoError(f.t, err, string(out))
	}
	used, err := exec.Command("df", "-k", "--output=used", home).Output()
	require.NoError(f.t, err)
	size(strings.Fields(string(used))[1] + "k")
	return func() { size("1g") }
}

// slowDisk lets every fsync of a process take longer; it returns in the midst of one, which a save has asked for: on a
// busy machine that is as long away as the steps until then take. Nobody is called silent or lost for that, which its
// mending holds.
func (f *faulty) slowDisk(p head.Proc, by time.Duration) func() {
	if _, err := exec.LookPath("strace"); err != nil {
		f.t.Log("a slow disk was left out: it needs strace")
		return nil
	}
	from, log := time.Now(), filepath.Join(f.dir, "strace.log")
	c := exec.Command("strace", "-f", "-q", "-o", log, "-e", "trace=fsync", "-e", fmt.Sprint("inject=fsync:delay_enter=", by.Microseconds()), "-p", fmt.Sprint(p.Pid))
	require.NoError(f.t, c.Start())
	f.t.Cleanup(func() { _ = c.Process.Kill() }) // it has ended where the test has not failed
	over := func() {
		_ = c.Process.Signal(unix.SIGTERM) // it may have ended with the process
		_ = c.Wait()                       // which is all that its code says
		_ = os.Remove(log)                 // it may not have come to be
	}
	begin := f.pace.newest()
	for last, at := begin, time.Now(); ; <-time.After(time.Millisecond) {
		if text, err := os.ReadFile(log); err == nil && bytes.Contains(text, []byte("fsync(")) {
			break
		}
		now := f.pace.newest()
		if now > last {
			at = time.Now()
		}
		last = max(last, now)
		if now-begin > 3*saveEvery || time.Since(at) > 2*time.Minute {
			f.t.Logf("a slow disk was left out: in %d steps no save of process %d of host %s has asked for the disk", now-begin, p.Pid, p.Host)
			over()
			f.at, f.from = time.Now(), f.pace.steps()
			return nil
		}
	}
	f.at, f.from = time.Now(), f.pace.steps()
	return func() {
		for _, bad := range []string{"lost", "suspect", "hung"} { // "slow" it is: strace stops it at each call
			if bad == "suspect" && busy() { // for want of a processor
				continue
			}
			require.NotRegexp(f.t, `(?m)^\S+ `+bad+" ", f.said(from))
		}
		over()
	}
}

// newFaulty starts a cluster whose disk can be full, and a run on it of which no rank has the state of another.
func newFaulty(t *testing.T) *faulty {
	dir := tinyRun(t)
	home := filepath.Join(dir, "home")
	require.NoError(t, os.Mkdir(home, 0o700))
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", home).CombinedOutput(); err != nil {
		t.Skipf("left out: a disk that is full needs a mount: %s", out)
	}
	t.Cleanup(func() { _ = syscall.Unmount(home, syscall.MNT_DETACH) }) // behind the cluster's end
	f := &faulty{verbs: verbs{t, dir, clusterHome(t, dir, "test")}, rng: rand.New(rand.NewPCG(59, 5)),
		home: filepath.Join(home, "clusters", "test"), kinds: map[string]*toll{}}
	f.verb(0, "cluster", "up", "--local", fmt.Sprint(faultAgents), "--heads", fmt.Sprint(*faultHeads), "--name", "test")
	t.Setenv("LFACTOR_HOME", home)
	c, err := user.Open("test")
	require.NoError(t, err)
	f.client, err = c.Client()
	require.NoError(t, err)
	slow := f.verbs
	slow.env = append(slow.env, "LFACTOR_FAULT=slow=0@1") // so that processes do not wait for this machine's processors
	slow.verb(0, append(f.arguments(), "plan.procs=4", "--cluster", "test", "--detach")...)
	f.pace = watchStrides(filepath.Join(dir, "run", "metrics.jsonl"))
	t.Cleanup(func() { close(f.pace.stop) })
	require.Eventually(t, func() bool { return f.pace.steps() > 10 }, 2*time.Minute, 10*time.Millisecond)
	return f
}

func (f *faulty) arguments() []string {
	return []string{"train", "run.yaml", "train.micro_batch=4", "train.steps=100000", "train.restarts=1000",
		fmt.Sprint("checkpoint.interval=", saveEvery), "schedule.decay_steps=1000", "plan.zero=1", "train.buddy=1"}
}

// settled is the cluster's state once every host is there and the run has all of its processes.
func (f *faulty) settled() (s head.Status) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		s = head.Status{}
		if f.client.Do(f.t.Context(), "GET", "/v1/status", nil, &s) != nil {
			return false
		}
		s.Jobs = slices.DeleteFunc(s.Jobs, func(j head.Job) bool { return j.State != head.Running })
		return len(s.Jobs) == 1 && len(s.Hosts) == faultAgents && len(s.Jobs[0].Procs) == 4 &&
			!slices.ContainsFunc(s.Hosts, func(h head.Host) bool { return h.State == "away" || h.State == "suspect" }) &&
			!slices.ContainsFunc(s.Heads, func(h head.SeatState) bool { return h.State == "away" }) &&
			!slices.ContainsFunc(s.Jobs[0].Procs, func(p head.Proc) bool { return p.Over || p.Pid == 0 })
	}, 2*time.Minute, 5*time.Millisecond, "%+v\n%s", &s, f.said(time.Time{}))
	return s
}

// said are the events behind a moment.
func (f *faulty) said(from time.Time) string {
	var b strings.Builder
	for _, e := range eventsOf(f.t, f.dir, f.env) {
		if e.Time.After(from) {
			fmt.Fprintln(&b, e.Time.Format("15:04:05.000"), e.Kind, e.Text)
		}
	}
	return b.String()
}

// meet lets a fault happen, and waits until steps go on and all is well.
func (f *faulty) meet(h hit) {
	s := f.settled()
	<-time.After(time.Duration(f.rng.IntN(200)) * time.Millisecond)
	from := time.Now()
	f.at, f.from = from, f.pace.steps()
	first := f.pace.newest()
	mend := h.do(f, s)
	again := f.pace.steps()
	on := func() bool { return f.pace.steps() > again+3 }
	for end := time.Now().Add(*faultStays); time.Now().Before(end) && !on(); {
		<-time.After(time.Millisecond)
	}
	if mend != nil {
		mend()
	}
	require.Eventually(f.t, on, 2*time.Minute, time.Millisecond, "%s: no step is committed any more", h.kind)
	next := f.pace.resumed(f.from).Sub(f.at).Seconds()
	f.settled()
	k := f.kinds[h.kind]
	if k == nil {
		k = &toll{}
		f.kinds[h.kind] = k
	}
	k.next = append(k.next, next)
	k.kept += float64(f.pace.newest() - first)
	k.took += time.Since(from).Seconds() / f.pace.usual()
	f.t.Logf("%-38s step after %5.0f ms, well after %5.0f ms", h.kind, 1e3*next, 1e3*time.Since(from).Seconds())
	if next > 3 {
		f.t.Logf("%s%s", f.said(from), f.verb(0, "logs", "1"))
	}
}

// TestClusterFaults: faults of 13 kinds, and pairs of faults of 14, happen to a run of four processes at random
// moments: half of the time the next step is made within 1.5 s, and 99 of 100 times within 3 s; on a machine with four
// times more work than processors, within 10 s. The run ends with the
// weights, optimizer state and ledger of one that nobody disturbed. It prints how long the next step took, and which
// share of the steps that would have been made meanwhile was.
func TestClusterFaults(t *testing.T) {
	longOnly(t, "single and double faults, drawn and timed (-faults, -doubles); TestClusterKilled and others have one each")
	f := newFaulty(t)
	var order []hit
	draw := func(of []hit, n int) {
		of = slices.DeleteFunc(slices.Clone(of), func(h hit) bool { return !strings.Contains(h.kind, *faultKinds) })
		for i := range n {
			if len(of) > 0 {
				order = append(order, of[i%len(of)])
			}
		}
	}
	draw(singles, *faultCount)
	draw(doubles, *doubleCount)
	f.rng.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
	began := time.Now()
	for _, h := range order {
		f.meet(h)
	}
	f.t.Logf("%d faults in %.0f s, load %s", len(order), time.Since(began).Seconds(), load())
	f.verb(0, "stop", "1")
	f.verb(0, "attach", "1")
	steps := f.pace.newest()
	one, two := f.tell("single", singles), f.tell("double", doubles)
	quiet := tinyRun(t)
	code, out := runIn(t, quiet, nil, append(f.arguments(), "-q", fmt.Sprint("train.steps=", steps))...)
	require.Zero(t, code, out)
	require.Equal(t, stateOf(t, quiet, steps), stateOf(t, f.dir, steps))
	for _, v := range [][]float64{one, two} {
		switch {
		case len(v) > 0 && busy():
			require.LessOrEqual(t, slices.Max(v), 10.)
		case len(v) > 0:
			require.LessOrEqual(t, quantile(v, 0.5), 1.5)
			require.LessOrEqual(t, quantile(v, 0.99), 3.)
		}
	}
}

// busy reports whether the machine has so much work that what is measured on it is its processors' queue.
func busy() bool {
	one, _ := strconv.ParseFloat(strings.Fields(load())[0], 64) // a system that tells none is not busy
	return one > 4*float64(runtime.NumCPU())
}

// tell prints what faults of some kinds have cost, and returns the times of their next steps.
func (f *faulty) tell(what string, of []hit) (all []float64) {
	kept, took := 0., 0.
	line := func(kind string, v []float64, share float64) {
		f.t.Logf("%-38s n %3d  next step after p50 %5.0f  p90 %5.0f  p99 %5.0f  most %5.0f ms, goodput %3.0f %%", kind,
			len(v), 1e3*quantile(v, 0.5), 1e3*quantile(v, 0.9), 1e3*quantile(v, 0.99), 1e3*slices.Max(v), 100*share)
	}
	for _, h := range of {
		if k := f.kinds[h.kind]; k != nil {
			line(h.kind, k.next, k.kept/k.took)
			all, kept, took = append(all, k.next...), kept+k.kept, took+k.took
		}
	}
	if len(all) > 0 {
		line("all "+what+" faults", all, kept/took)
	}
	return all
}
