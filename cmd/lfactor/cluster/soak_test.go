package cluster_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
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
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/topology/machine"
)

var soak = flag.Duration("soak", 5*time.Minute,
	"how long TestClusterSoak and TestClusterClean train, with -long")

// soaked is a run of steps of some 50 ms on a cluster of local agents, until it is stopped.
type soaked struct {
	*reliable
	verbs
	home string
	args []string
	cmd  *exec.Cmd
	said bytes.Buffer
}

func newSoaked(t *testing.T, hosts int) *soaked {
	dir := tinyRun(t)
	s := &soaked{verbs: verbs{t, dir, clusterHome(t, dir, "test")},
		args: append(append([]string{"train", "run.yaml", "plan.procs=4"}, widerArgs...),
			"train.steps=10000000", "train.restarts=100000", "checkpoint.interval=100", "checkpoint.keep=3")}
	s.verb(0, "cluster", "up", "--local", fmt.Sprint(hosts), "--name", "test")
	t.Setenv("LFACTOR_HOME", filepath.Join(dir, "home"))
	c, err := user.Open("test")
	require.NoError(t, err)
	client, err := c.Client()
	require.NoError(t, err)
	s.home = c.Path()
	s.cmd = exec.Command(builtHead(t), append(s.args, "--cluster", "test")...)
	s.cmd.Dir, s.cmd.Stderr, s.cmd.Stdout = dir, &s.said, &s.said
	s.cmd.Env = append(os.Environ(), s.env...)
	require.NoError(t, s.cmd.Start())
	s.reliable = &reliable{t: t, dir: dir, client: client,
		pace: watchPace(filepath.Join(dir, "run", "metrics.jsonl")),
		ids: func(all []head.Proc) (out []int) {
			for _, p := range all {
				out = append(out, p.Pid)
			}
			return out
		}}
	t.Cleanup(func() { close(s.pace.stop) })
	require.Eventually(t, func() bool { return s.pace.steps() > 50 }, 2*time.Minute, 10*time.Millisecond)
	return s
}

// ends stops the run and compares what it leaves with a run of as many steps in one process.
func (s *soaked) ends() (steps int64) {
	t := s.verbs.t
	t.Helper()
	s.verb(0, "stop", "1")
	require.NoError(t, s.cmd.Wait(), s.said.String())
	file := filepath.Join(s.verbs.dir, "run", "metrics.jsonl")
	info, err := os.Stat(file)
	require.NoError(t, err)
	steps = lastStep(file, info.Size())
	quiet := tinyRun(t)
	args := append(slices.Clone(s.args), fmt.Sprint("train.steps=", steps), "plan.procs=1", "-q")
	code, out := runIn(t, quiet, nil, args...)
	require.Zero(t, code, out)
	require.Equal(t, stateOf(t, quiet, steps), stateOf(t, s.verbs.dir, steps))
	return steps
}

// load is the machine's mean number of runnable threads in the last minute.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// TestClusterClean: while nothing is the matter, for five minutes nobody is called slow, suspect or lost, but
// for what other work on this machine takes of its processors.
func TestClusterClean(t *testing.T) {
	if !*long {
		t.Skip("left out: five minutes of training in which nothing happens; add -long")
	}
	s := newSoaked(t, 4)
	st := s.status()
	w, end := watches(map[string]int{"head": machine.Holder(filepath.Join(s.home, "head")),
		"agent":     machine.Holder(filepath.Join(s.home, "agents", st.Jobs[0].Procs[1].Host)),
		"process 0": st.Jobs[0].Procs[0].Pid, "process 1": st.Jobs[0].Procs[1].Pid})
	from, n, before := time.Now(), s.pace.steps(), load()
	<-time.After(*soak)
	end()
	took, n := time.Since(from), s.pace.steps()-n
	counts := map[string]int{}
	for _, e := range eventsOf(t, s.verbs.dir, s.env) {
		crowd := strings.Contains(e.Text, "which other work on its host has")
		if crowd {
			counts["crowded"]++
		}
		counts[e.Kind]++
		if slices.Contains([]string{"slow", "suspect", "lost", "exit", "restart"}, e.Kind) && !crowd {
			t.Errorf("%s %s %s", e.Time.Format("15:04:05.000"), e.Kind, e.Text)
		}
	}
	w.judge(t)
	steps := s.ends()
	t.Logf("%d steps in %.0f s, load %s before and %s after, events %v; %d steps in all", n, took.Seconds(),
		before, load(), counts, steps)
}

// footprint is what a process holds at a moment.
type footprint struct {
	at      time.Duration
	rss     float64 // MiB
	files   int
	threads int
}

func footprintOf(pid int, at time.Duration) (f footprint, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return f, false
	}
	value := func(key string) (n int) {
		if _, rest, ok := strings.Cut(string(text), "\n"+key+":"); ok {
			n, _ = strconv.Atoi(strings.Fields(rest)[0])
		}
		return n
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil || value("VmRSS") == 0 {
		return f, false
	}
	return footprint{at, float64(value("VmRSS")) / 1024, len(files), value("Threads")}, true
}

// watched are the processes of a soaked run that no fault hits, and what they held over time.
type watched struct {
	pids map[string]int
	held map[string][]footprint
}

// watches samples what processes hold each second, until the function that it returns is called.
func watches(pids map[string]int) (w *watched, end func()) {
	w = &watched{pids, map[string][]footprint{}}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick, from := time.NewTicker(time.Second), time.Now()
		defer tick.Stop()
		for {
			for name, pid := range pids {
				if f, ok := footprintOf(pid, time.Since(from)); ok {
					w.held[name] = append(w.held[name], f)
				}
			}
			select {
			case <-over:
				return
			case <-tick.C:
			}
		}
	}()
	return w, func() { close(over); <-done }
}

// quarter are the medians of what a process held in a quarter of the time.
func quarter(all []footprint, n int) (rss, files, threads float64) {
	part := all[n*len(all)/4 : (n+1)*len(all)/4]
	of := func(value func(footprint) float64) float64 {
		v := make([]float64, 0, len(part))
		for _, f := range part {
			v = append(v, value(f))
		}
		return quantile(v, 0.5)
	}
	return of(func(f footprint) float64 { return f.rss }),
		of(func(f footprint) float64 { return float64(f.files) }),
		of(func(f footprint) float64 { return float64(f.threads) })
}

// judge holds what processes held in the last quarter of the time against the second.
func (w *watched) judge(t *testing.T) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(w.held)) {
		all := w.held[name]
		r1, f1, t1 := quarter(all, 1)
		r3, f3, t3 := quarter(all, 3)
		hours := (all[len(all)-1].at - all[0].at).Hours() / 2
		t.Logf("%s: %.1f then %.1f MiB (%+.1f MiB an hour), %.0f then %.0f files, %.0f then %.0f threads",
			name, r1, r3, (r3-r1)/hours, f1, f3, t1, t3)
		// the heap of a Go program of this size comes and goes by some MiB, and its threads by some
		require.LessOrEqual(t, r3, 1.1*r1+hours, "%s holds more and more memory", name)
		require.LessOrEqual(t, f3, f1+2, "%s holds more and more files", name)
		require.LessOrEqual(t, t3, t1+4, "%s has more and more threads", name)
	}
}

// goroutines ends a process with SIGQUIT and counts the stacks that it writes.
func goroutines(t *testing.T, pid int, log func() string) (n int) {
	t.Helper()
	count := func() int { return len(regexp.MustCompile(`goroutine \d+ `).FindAllString(log(), -1)) }
	before := count()
	require.NoError(t, syscall.Kill(pid, syscall.SIGQUIT))
	require.Eventually(t, func() bool {
		now := count() - before
		same := now > 0 && now == n
		n = now
		return same
	}, 2*time.Minute, time.Second, "process %d writes no stacks", pid)
	return n
}

// compare holds the goroutines of the processes that were spared to those of others, whose ends began again.
func (s *soaked) compare(spared map[string]int) {
	t := s.verbs.t
	t.Helper()
	procs := s.status().Jobs[0].Procs
	output := func() string { return s.verb(0, "logs", "1") }
	old, fresh := goroutines(t, procs[1].Pid, output), goroutines(t, procs[3].Pid, output)
	t.Logf("goroutines: %d of process 1, %d of process 3", old, fresh)
	require.LessOrEqual(t, old, fresh+10)
	agent := func(name string) int {
		dir := filepath.Join(s.home, "agents", name)
		return goroutines(t, machine.Holder(dir), func() string {
			text, err := os.ReadFile(filepath.Join(dir, "log"))
			require.NoError(t, err)
			return string(text)
		})
	}
	require.Equal(t, spared["its agent"], machine.Holder(filepath.Join(s.home, "agents", procs[1].Host)))
	old, fresh = agent(procs[1].Host), agent(procs[3].Host)
	t.Logf("goroutines: %d of the agent of process 1, %d of that of process 3", old, fresh)
	require.LessOrEqual(t, old, fresh+10)
}

// faults are what hits a soaked run: kills of each role but of one process and its agent, and a process that
// is stopped for ever.
func (s *soaked) faults() (all []mishap, spared map[string]int) {
	st := s.status()
	keep := st.Jobs[0].Procs[1]
	for _, m := range mishaps(s.home) {
		if m.role != "process 1" {
			all = append(all, m)
		}
	}
	require.NotEqual(s.verbs.t, keep.Host, st.Jobs[0].Procs[3].Host)
	return all, map[string]int{"process 1": keep.Pid,
		"its agent": machine.Holder(filepath.Join(s.home, "agents", keep.Host)),
		"command":   s.cmd.Process.Pid}
}

// TestClusterSoak: a random fault each 15 seconds. Goodput, the share of the steps that would be committed
// without faults, is 90 % and more; processes that are spared hold no more memory, files, threads and
// goroutines in the end; and the run ends with the weights, optimizer state and ledger of one that nobody
// disturbed. -soak 1h is what it is meant for.
//
//lfvet:long faults, and what is held against them
func TestClusterSoak(t *testing.T) {
	if !*long {
		t.Skip("left out: a fault each 15 seconds for minutes; add -long")
	}
	const every = 15 * time.Second
	s := newSoaked(t, 5)
	faults, spared := s.faults()
	w, end := watches(spared)
	rng := rand.New(rand.NewPCG(21, 15))
	from, first, n := time.Now(), s.pace.steps(), map[string]int{}
	quiet, calm := 0, 0. // steps in the last five seconds before each fault, and those seconds
	var known, next []float64
	for at := from; time.Since(from) < *soak; at = at.Add(every) {
		<-time.After(time.Until(at.Add(every - 5*time.Second)))
		a, b := s.pace.steps(), time.Now()
		<-time.After(time.Until(at.Add(every)))
		quiet, calm = quiet+s.pace.steps()-a, calm+time.Since(b).Seconds()
		m := faults[rng.IntN(len(faults))]
		if m.role == "leading process" && n[m.role] >= 4*(1+int(time.Since(from)/(10*time.Minute))) {
			m = faults[1] // the head gives a job up whose leader ends more often in ten minutes
		}
		n[m.role]++
		k, x := s.kill(m)
		known, next = append(known, k), append(next, x)
	}
	took, steps := time.Since(from).Seconds(), s.pace.steps()-first
	end()
	goodput := float64(steps) / took / (float64(quiet) / calm)
	t.Logf("%d steps in %.0f s, %.1f a second without faults: goodput %.1f %%; faults %v, known after p50 %.0f "+
		"p99 %.0f ms, longest pause over after p50 %.0f p99 %.0f ms; load %s", steps, took,
		float64(quiet)/calm, 100*goodput, n, 1e3*quantile(known, .5), 1e3*quantile(known, .99),
		1e3*quantile(next, .5), 1e3*quantile(next, .99), load())
	w.judge(t)
	require.GreaterOrEqual(t, goodput, 0.9)
	s.compare(spared)
	t.Logf("%d steps in all", s.ends())
}
