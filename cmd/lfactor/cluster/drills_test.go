package cluster_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head"
)

// Hosts of the drills: three with heads, which no job uses, and those that jobs use, one of which is spare.
const (
	drillHeads = 3
	drillHosts = 8
	drillProcs = 4
)

// drills is a cluster of hosts with ssh on which a run trains while things go wrong.
type drills struct {
	*lab
	t    *testing.T
	rng  *rand.Rand
	dir  string // of the run, which all hosts see
	pace *strides
	next map[string][]float64 // by kind of fault: seconds until steps go on
}

// drill is a kind of fault. It may return what makes it good again, which comes faultLasts later.
type drill struct {
	kind string
	hits func(d *drills, s *head.Status) (mend func())
}

// faultLasts is how long a fault that does not pass by itself stays.
const faultLasts = 2 * time.Second

// drillKinds are all kinds of faults.
var drillKinds = []drill{
	{"leader killed", func(d *drills, s *head.Status) func() {
		return d.signal("KILL",
			s.Jobs[0].Procs[0])
	}},
	{"worker killed", func(d *drills, s *head.Status) func() { return d.signal("KILL", d.worker(s)) }},
	{"leader stopped", func(d *drills, s *head.Status) func() {
		return d.signal("STOP", s.Jobs[0].Procs[0])
	}},
	{"worker stopped", func(d *drills, s *head.Status) func() { return d.signal("STOP", d.worker(s)) }},
	{"leader and worker killed", func(d *drills, s *head.Status) func() {
		return d.signal("KILL", s.Jobs[0].Procs[0], d.worker(s))
	}},
	{"host cut off", func(d *drills, s *head.Status) func() { return d.cut(d.worker(s).Host, true, true) }},
	{"host not heard", func(d *drills, s *head.Status) func() {
		return d.cut(d.worker(s).Host, true, false)
	}},
	{"host hears nobody", func(d *drills, s *head.Status) func() {
		return d.cut(d.worker(s).Host, false, true)
	}},
	{"link slow", func(d *drills, s *head.Status) func() {
		h := d.host(d.worker(s).Host)
		h.Rate(10e6)
		return func() { h.Rate(10e9) }
	}},
	{"disks full", func(d *drills, s *head.Status) func() {
		return d.fill(s.Jobs[0].Procs[0].Host, d.leads(s).Name)
	}},
	{"host lost, added again", func(d *drills, s *head.Status) func() {
		h := d.host(d.worker(s).Host)
		h.Kill()
		return func() {
			h.Boot()
			h.SSHD()
			code, out := d.user("cluster", "add", h.Name)
			require.Zero(d.t, code, out)
		}
	}},
	{"leading head killed", func(d *drills, s *head.Status) func() {
		x := d.leads(s)
		return d.signal("KILL", head.Proc{Host: x.Name, Pid: x.Pid})
	}},
}

// TestClusterDrills: 60 faults of 12 kinds on real hosts, in five runs that each meet every kind once, in an
// order of its own. Each run ends with the weights, optimizer state and ledger of one that nobody disturbed.
// It prints how long it took until steps went on.
func TestClusterDrills(t *testing.T) {
	longOnly(t, "60 faults of 12 kinds on hosts with ssh: sim/heads and sim have them in virtual time")
	const rounds = 5
	d := newDrills(t)
	for round := range rounds {
		id := d.begin(round)
		kinds := slices.Clone(drillKinds)
		d.rng.Shuffle(len(kinds), func(i, k int) { kinds[i], kinds[k] = kinds[k], kinds[i] })
		for _, k := range kinds {
			d.meet(k)
		}
		d.end(id)
	}
	var all []float64
	for _, k := range drillKinds {
		v := d.next[k.kind]
		require.Len(t, v, rounds)
		all = append(all, v...)
		t.Logf("%-26s n %d  steps go on after p50 %5.0f  most %5.0f ms", k.kind, len(v),
			1e3*quantile(v, 0.5), 1e3*slices.Max(v))
	}
	t.Logf("%d faults of %d kinds in %d runs: steps go on after p50 %.0f  p99 %.0f  most %.0f ms", len(all),
		len(drillKinds), rounds, 1e3*quantile(all, 0.5), 1e3*quantile(all, 0.99), 1e3*slices.Max(all))
	require.Less(t, quantile(all, 0.5), 1.5)
	require.Less(t, quantile(all, 0.99), 3.)
}

func newDrills(t *testing.T) *drills {
	dir := t.TempDir()
	d := &drills{lab: newLab(t, dir, drillHosts), t: t, rng: rand.New(rand.NewPCG(32, 60)),
		next: map[string][]float64{}}
	var text strings.Builder
	fmt.Fprint(&text, "name: lab\nheads: [h1, h2, h3]\nhosts:\n")
	for n := range drillHosts {
		fmt.Fprintf(&text, "  - ssh: h%d\n", n+1)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hosts.yaml"), []byte(text.String()), 0o644))
	code, out := d.user("cluster", "up", "hosts.yaml", "--ssh", d.ssh)
	require.Zero(t, code, out)
	for n := range drillHeads {
		code, out := d.user("cluster", "drain", fmt.Sprint("h", n+1))
		require.Zero(t, code, out)
	}
	return d
}

// arguments are those of a run. On the hosts its first rank stands still for 150 ms in each step, so that
// what is measured is not how hosts share this machine's processors.
func (d *drills) arguments() []string {
	return []string{"train", "run.yaml", "train.micro_batch=4", "train.steps=100000", "train.restarts=100",
		"checkpoint.interval=50", "schedule.decay_steps=1000"}
}

// begin starts a run, and waits until it takes steps.
func (d *drills) begin(round int) (id string) {
	d.dir = filepath.Join(d.lab.dir, fmt.Sprint("run", round))
	require.NoError(d.t, os.CopyFS(d.dir, os.DirFS(tinyRun(d.t))))
	args := append([]string{"env", "LFACTOR_FAULT=slow=0@1", d.binary}, d.arguments()...)
	c := d.Hosts[drillHosts].In(d.dir, append(args, "--cluster", "lab", "--detach",
		fmt.Sprint("plan.procs=", drillProcs))...)
	out, err := c.CombinedOutput()
	require.NoError(d.t, err, string(out))
	d.pace = watchStrides(filepath.Join(d.dir, "run", "metrics.jsonl"))
	require.Eventually(d.t, func() bool { return d.pace.steps() > 10 }, 2*time.Minute, 10*time.Millisecond)
	return d.settled().Jobs[0].ID
}

// end stops a run, and compares what it leaves with as many steps that nobody disturbed.
func (d *drills) end(id string) {
	code, out := d.user("stop", id)
	require.Zero(d.t, code, out)
	code, out = d.user("attach", id)
	require.Zero(d.t, code, out)
	close(d.pace.stop)
	file := filepath.Join(d.dir, "run", "metrics.jsonl")
	info, err := os.Stat(file)
	require.NoError(d.t, err)
	steps := lastStep(file, info.Size())
	quiet := tinyRun(d.t)
	code, out = runIn(d.t, quiet, nil, append(d.arguments(), "-q", fmt.Sprint("train.steps=", steps))...)
	require.Zero(d.t, code, out)
	require.Equal(d.t, stateOf(d.t, quiet, steps), stateOf(d.t, d.dir, steps))
	d.t.Logf("run %s: %d steps, weights, optimizer state and ledger are those of a run left alone", id,
		steps)
}

// meet lets a fault happen, and waits until all is well again.
func (d *drills) meet(k drill) {
	s := d.settled()
	<-time.After(time.Duration(d.rng.IntN(200)) * time.Millisecond)
	at, n := time.Now(), d.pace.steps()
	mend := k.hits(d, s)
	require.Eventually(d.t, func() bool { return d.pace.steps() > n+10 }, time.Minute, time.Millisecond,
		"%s: no step is committed any more", k.kind)
	next := d.pace.resumed(n).Sub(at)
	d.next[k.kind] = append(d.next[k.kind], next.Seconds())
	d.t.Logf("%-26s steps go on after %5d ms", k.kind, next.Milliseconds())
	if mend != nil {
		<-time.After(time.Until(at.Add(faultLasts)))
		mend()
	}
}

// settled is the cluster's state when every host and head is there, and the run has all of its processes.
func (d *drills) settled() *head.Status {
	d.t.Helper()
	var s *head.Status
	var text string
	require.Eventually(d.t, func() bool {
		var code int
		s = &head.Status{}
		code, text = d.user("cluster", "status", "-o", "json")
		if code != 0 || json.Unmarshal([]byte(text), s) != nil {
			return false
		}
		s.Jobs = slices.DeleteFunc(s.Jobs, func(j head.Job) bool { return j.State != head.Running })
		return len(s.Jobs) == 1 && len(s.Hosts) == drillHosts && len(s.Heads) == drillHeads &&
			!slices.ContainsFunc(s.Hosts, func(h head.Host) bool { return h.State == "away" }) &&
			!slices.ContainsFunc(s.Heads, func(h head.SeatState) bool { return h.State == "away" }) &&
			!slices.ContainsFunc(s.Jobs[0].Procs, func(p head.Proc) bool { return p.Over || p.Pid == 0 })
	}, 2*time.Minute, 50*time.Millisecond, "%v", text)
	return s
}

// worker is a process that does not lead.
func (d *drills) worker(s *head.Status) head.Proc {
	return s.Jobs[0].Procs[1+d.rng.IntN(drillProcs-1)]
}

// leads is the head that does.
func (d *drills) leads(s *head.Status) head.SeatState {
	i := slices.IndexFunc(s.Heads, func(h head.SeatState) bool { return h.State == "leads" })
	require.GreaterOrEqual(d.t, i, 0)
	return s.Heads[i]
}

// host is the one of a name.
func (d *drills) host(name string) *Host {
	i := slices.IndexFunc(d.Hosts, func(h *Host) bool { return h.Name == name })
	require.GreaterOrEqual(d.t, i, 0, name)
	return d.Hosts[i]
}

// signal sends processes on their hosts a signal, all at once.
func (d *drills) signal(name string, procs ...head.Proc) func() {
	var all []*exec.Cmd
	for _, p := range procs {
		c := d.host(p.Host).Command("kill", "-"+name, fmt.Sprint(p.Pid))
		require.NoError(d.t, c.Start())
		all = append(all, c)
	}
	for _, c := range all {
		require.NoError(d.t, c.Wait())
	}
	return nil
}

// cut drops what a host sends to the others, what they send to it, or both.
func (d *drills) cut(name string, out, in bool) func() {
	h := d.host(name)
	others := slices.DeleteFunc(slices.Clone(d.Hosts), func(o *Host) bool { return o == h })
	each := func(f func(h *Host, from ...*Host)) {
		if out {
			f(h, others...)
		}
		for _, o := range others {
			if in {
				f(o, h)
			}
		}
	}
	each((*Host).Cut)
	return func() { each((*Host).Heal) }
}

// strides watches when steps are committed, those too that are taken again.
type strides struct {
	mu   sync.Mutex
	at   []time.Time
	most int64 // the newest step
	stop chan struct{}
}

func watchStrides(file string) *strides {
	p := &strides{stop: make(chan struct{})}
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		before, size := int64(0), int64(0)
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
			}
			info, err := os.Stat(file)
			if err != nil || info.Size() == size {
				continue
			}
			size = info.Size()
			step := lastStep(file, size)
			if step > before { // else steps are dropped that are going to be taken again
				p.mu.Lock()
				p.at, p.most = append(p.at, time.Now()), max(p.most, step)
				p.mu.Unlock()
			}
			before = step
		}
	}()
	return p
}

func (p *strides) steps() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.at)
}

// resumed is when the first step was committed behind the longest pause since step number n, or, where no
// pause was twice as long as steps take, behind that step.
func (p *strides) resumed(n int) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest, end := time.Duration(0), n
	for i := n; i < len(p.at); i++ {
		if gap := p.at[i].Sub(p.at[i-1]); gap > longest {
			longest, end = gap, i
		}
	}
	if longest.Seconds() < 2*p.median(n) {
		end = n
	}
	return p.at[end]
}

// median is the median time from step to step before step number n, in seconds.
func (p *strides) median(n int) float64 {
	gaps := []float64{}
	for i := 1; i < n; i++ {
		gaps = append(gaps, p.at[i].Sub(p.at[i-1]).Seconds())
	}
	return quantile(gaps, 0.5)
}

// usual is how long a step takes, in seconds.
func (p *strides) usual() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.median(len(p.at))
}

// newest is the last step that was committed.
func (p *strides) newest() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

// fill leaves no room on the disks that agents and heads of hosts write to.
func (d *drills) fill(names ...string) func() {
	size := func(name, script string) {
		out, err := d.host(name).Command("sh", "-c", script).CombinedOutput()
		require.NoError(d.t, err, string(out))
	}
	for _, n := range slices.Compact(names) {
		size(n, `mount -o remount,size=$(df -k --output=used /root | tail -1)k /root`)
	}
	return func() {
		for _, n := range slices.Compact(names) {
			size(n, "mount -o remount,size=50% /root")
		}
	}
}
