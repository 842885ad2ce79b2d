package cluster_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/topology/machine"
)

// pace watches when steps are committed that were not before, by what the run writes of them.
type pace struct {
	mu   sync.Mutex
	at   []time.Time
	stop chan struct{}
}

func watchPace(file string) *pace {
	p := &pace{stop: make(chan struct{})}
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		newest, size := int64(0), int64(0)
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
			if step := lastStep(file, size); step > newest {
				newest = step
				p.mu.Lock()
				p.at = append(p.at, time.Now())
				p.mu.Unlock()
			}
		}
	}()
	return p
}

// lastStep is the step of the last whole line of a run's metrics, 0 if there is none.
func lastStep(file string, size int64) int64 {
	f, err := os.Open(file)
	if err != nil {
		return 0
	}
	defer f.Close()
	b := make([]byte, min(size, 1<<12))
	n, _ := f.ReadAt(b, size-int64(len(b))) // it may have become shorter
	b = b[:bytes.LastIndexByte(b[:n], '\n')+1]
	var m run.Metrics
	if all := bytes.Split(bytes.TrimSpace(b), []byte("\n")); json.Unmarshal(all[len(all)-1], &m) != nil {
		return 0
	}
	return m.Step
}

// resumed is the end of the longest pause between steps from a moment on.
func (p *pace) resumed(from time.Time) (end time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest := time.Duration(-1)
	for i := 1; i < len(p.at); i++ {
		if gap := p.at[i].Sub(p.at[i-1]); p.at[i].After(from) && gap > longest {
			longest, end = gap, p.at[i]
		}
	}
	return end
}

func (p *pace) steps() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.at)
}

// mishap is a kind of process of a cluster that is killed.
type mishap struct {
	role   string
	victim func(s head.Status) int
	known  string // event that shows that the loss is known, "" for none
	spares func(procs []head.Proc) []head.Proc
}

func mishaps(home string) (all []mishap) {
	for n := range 4 {
		role, known := fmt.Sprintf("process %d", n), fmt.Sprintf("process %d of job 1 on", n)
		if n == 0 {
			role, known = "leading process", "another takes its place"
		}
		all = append(all, mishap{role, func(s head.Status) int { return s.Jobs[0].Procs[n].Pid }, known,
			func(p []head.Proc) []head.Proc { return slices.Delete(slices.Clone(p), n, n+1) }})
	}
	at := func(s head.Status) string { return s.Jobs[0].Procs[3].Host }
	return append(all,
		mishap{"agent", func(s head.Status) int {
			return machine.Holder(filepath.Join(home, "agents", at(s)))
		},
			"suspect host", func(p []head.Proc) []head.Proc {
				return slices.DeleteFunc(slices.Clone(p), func(x head.Proc) bool {
					return x.Host == p[3].Host
				})
			}},
		mishap{"head", func(head.Status) int { return machine.Holder(filepath.Join(home, "head")) },
			"head up at",
			func(p []head.Proc) []head.Proc { return p }})
}

// reliable is a cluster on which a job trains that is disturbed.
type reliable struct {
	t      *testing.T
	dir    string
	client *control.Client
	pace   *pace
	ids    func([]head.Proc) []int
}

func (r *reliable) status() (s head.Status) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		s = head.Status{}
		return r.client.Do(r.t.Context(), "GET", "/v1/status", nil, &s) == nil
	}, 2*time.Minute, 10*time.Millisecond)
	return s
}

// event waits for an event behind a moment.
func (r *reliable) event(from time.Time, text string) (at time.Time) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		body, err := r.client.Open(r.t.Context(), "GET", "/v1/events?follow=0", nil)
		if err != nil {
			return false
		}
		defer body.Close()
		for d := json.NewDecoder(body); d.More(); {
			var e head.Event
			if d.Decode(&e) != nil {
				return false
			}
			if e.Time.After(from) && strings.Contains(e.Kind+" "+e.Text, text) {
				at = e.Time
				return true
			}
		}
		return false
	}, 2*time.Minute, 10*time.Millisecond, text)
	return at
}

// kill kills a process of a role and returns after how many seconds that was known and the next step
// committed. All processes of the job but the role's are the same afterwards.
func (r *reliable) kill(m mishap) (known, next float64) {
	r.t.Helper()
	before := r.status()
	pid := m.victim(before)
	require.Positive(r.t, pid, m.role)
	at := time.Now()
	require.NoError(r.t, syscall.Kill(pid, syscall.SIGKILL))
	known = r.event(at, m.known).Sub(at).Seconds()
	n := r.pace.steps()
	require.Eventually(r.t, func() bool { return r.pace.steps() > n+10 }, 2*time.Minute, time.Millisecond,
		"%s: no step is committed any more", m.role)
	next = r.pace.resumed(at).Sub(at).Seconds()
	require.Eventually(r.t, func() bool { // the head has to hear of the new ones
		for _, p := range r.status().Jobs[0].Procs {
			if p.Over || p.Pid == 0 {
				return false
			}
		}
		return true
	}, 2*time.Minute, 10*time.Millisecond)
	after := r.ids(r.status().Jobs[0].Procs)
	for _, pid := range r.ids(m.spares(before.Jobs[0].Procs)) {
		require.Contains(r.t, after, pid, "%s: the other processes are the same", m.role)
	}
	return known, next
}

// TestClusterReliable kills processes of each role of a cluster at random moments of a run of steps of some
// 50 ms: each time the others keep their processes, and the run, which is stopped then, ends with the
// weights, optimizer state and ledger of one that nobody disturbed. It prints how long it took until a loss
// was known and until the next step.
//
//lfvet:long a cluster, a run on it, and what is compared
func TestClusterReliable(t *testing.T) {
	longOnly(t, "kills of each role at random moments, with their times: sim/heads has what heads "+
		"decide then, TestClusterKilled and TestClusterLeaderKilled one kill of each")
	rounds := 1
	if *long {
		rounds = 34
	} else {
		t.Log("6 kills, one of each role; 204 with -long")
	}
	args := append(append([]string{"train", "run.yaml", "plan.procs=4"}, widerArgs...),
		"train.steps=10000000", "train.restarts=100", "checkpoint.interval=20")
	dir := tinyRun(t)
	env := clusterHome(t, dir, "test")
	code, out := runIn(t, dir, env, "cluster", "up", "--local", "5", "--name", "test")
	require.Zero(t, code, out)
	t.Setenv("LFACTOR_HOME", filepath.Join(dir, "home"))
	c, err := user.Open("test")
	require.NoError(t, err)
	client, err := c.Client()
	require.NoError(t, err)
	cmd := exec.Command(builtHead(t), append(args, "--cluster", "test")...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr, cmd.Stdout, cmd.Env = dir, &said, &said, append(os.Environ(), env...)
	require.NoError(t, cmd.Start())
	r := &reliable{t: t, dir: dir, client: client,
		pace: watchPace(filepath.Join(dir, "run", "metrics.jsonl")),
		ids: func(all []head.Proc) (out []int) {
			for _, p := range all {
				out = append(out, p.Pid)
			}
			return out
		}}
	defer close(r.pace.stop)
	require.Eventually(t, func() bool { return r.pace.steps() > 10 }, 2*time.Minute, time.Millisecond)
	rng := rand.New(rand.NewPCG(3, 4))
	known, next := map[string][]float64{}, map[string][]float64{}
	for range rounds {
		for i, m := range mishaps(c.Path()) {
			if i == 0 && len(known[m.role]) == 5 {
				continue // the head gives a job up whose leader ends more often in ten minutes
			}
			<-time.After(time.Duration(rng.IntN(200)) * time.Millisecond)
			k, n := r.kill(m)
			known[m.role], next[m.role] = append(known[m.role], k), append(next[m.role], n)
		}
	}
	code, out = runIn(t, dir, env, "stop", "1")
	require.Zero(t, code, out)
	require.NoError(t, cmd.Wait(), said.String())
	steps := int64(clitest.Steps(t, dir))
	quiet := tinyRun(t)
	code, out = runIn(t, quiet, nil, append(args, "-q", fmt.Sprint("train.steps=", steps))...)
	require.Zero(t, code, out)
	require.Equal(t, stateOf(t, quiet, steps), stateOf(t, dir, steps))
	for _, m := range mishaps(c.Path()) {
		t.Logf("%-16s n %3d  known after p50 %4.0f p99 %4.0f ms  longest pause between steps over after "+
			"p50 %5.0f p99 %5.0f ms", m.role,
			len(known[m.role]), 1e3*quantile(known[m.role], 0.5), 1e3*quantile(known[m.role], 0.99),
			1e3*quantile(next[m.role], 0.5), 1e3*quantile(next[m.role], 0.99))
	}
}

func quantile(v []float64, q float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[int(q*float64(len(v)-1))]
}
