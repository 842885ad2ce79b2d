package cluster_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/host"
)

// planted is a job on a cluster in which something is the matter with one rank.
type planted struct {
	verbs
	job  string
	dir  string // what it writes
	rank int
	step int
}

// steps is how many the job has committed.
func (p *planted) steps() int {
	text, _ := os.ReadFile(filepath.Join(p.dir, "metrics.jsonl"))
	return bytes.Count(text, []byte("\n"))
}

// reaches waits for a step.
func (p *planted) reaches(step int) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.steps() >= step }, 2*time.Minute, time.Millisecond,
		"job %s does not reach step %d", p.job, step)
}

// pid is the process of the culprit: ranks have one each.
func (p *planted) pid() int {
	var jobs []head.Job
	p.json(&jobs, "ps")
	for _, j := range jobs {
		if j.ID == p.job {
			return j.Procs[p.rank].Pid
		}
	}
	p.t.Fatalf("job %s is not there", p.job)
	return 0
}

// hung asks why until the answer is one of something that has stood still for a second.
func (p *planted) hung() (d host.Diagnosis) {
	p.t.Helper()
	p.reaches(p.step - 1)
	age := regexp.MustCompile(`\(([0-9.]+m?s)\)$`)
	require.Eventually(p.t, func() bool {
		p.json(&d, "why", p.job, "--cluster", "test")
		if len(d.Chain) == 0 || d.Kind == "none" {
			return false
		}
		m := age.FindStringSubmatch(d.Chain[len(d.Chain)-1])
		if m == nil {
			return false
		}
		took, err := time.ParseDuration(m[1])
		return err == nil && took > time.Second
	}, 2*time.Minute, 50*time.Millisecond, "nothing hangs: %v", &d)
	return d
}

// slow are the ranks that events of the job call slow by themselves.
func (p *planted) slow() (texts []string) {
	for _, e := range eventsOf(p.t, p.verbs.dir, p.env) {
		if e.Kind == "slow" && e.Job == p.job &&
			!strings.Contains(e.Text, "which other work on its host has") {
			texts = append(texts, e.Text)
		}
	}
	return texts
}

// nameSlow waits until a rank is called slow, and says which.
func (p *planted) nameSlow() (text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		if all := p.slow(); len(all) > 0 {
			text = all[0]
		}
		return text != ""
	}, 2*time.Minute, 50*time.Millisecond, "nobody is named")
	return text
}

// stops stops a process again and again for most of the time, until the function that it returns is called.
func stops(t *testing.T, pid int) (end func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, x := range []struct {
				signal syscall.Signal
				after  time.Duration
			}{{syscall.SIGSTOP, 160 * time.Millisecond}, {syscall.SIGCONT, 40 * time.Millisecond}} {
				if syscall.Kill(pid, x.signal) != nil {
					return // it has ended
				}
				<-time.After(x.after)
			}
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	end = sync.OnceFunc(func() { close(over); <-done })
	t.Cleanup(end)
	return end
}

// culprits are what may be the matter: the fault that is planted, what happens during the run, and what is
// said of it, which must have the pattern.
var culprits = []struct {
	kind  string
	fault func(p *planted) string
	named func(p *planted) (said, want string)
}{
	{"a device that never comes back",
		func(p *planted) string { return fmt.Sprintf("stuck=%d@%d", p.rank, p.step) },
		func(p *planted) (string, string) {
			d := p.hung()
			return d.Kind + " " + d.Root, fmt.Sprintf("^busy rank %d .* is at work on", p.rank)
		}},
	{"credits that are not given back", func(*planted) string { return "leak=0" },
		func(p *planted) (string, string) {
			p.step = 0
			d := p.hung() // both replicas lose them, and one is found first
			return d.Kind + " " + d.Root, "^credit a credit leaked on edge activation 0→1: rank [01] "
		}},
	{"a process that is stopped", nil, func(p *planted) (string, string) {
		p.rank = max(1, p.rank) // the one that leads is the head's to judge, which hears its agent
		p.reaches(p.step)
		pid := p.pid()
		require.NoError(p.t, syscall.Kill(pid, syscall.SIGSTOP))
		var said string
		require.Eventually(p.t, func() bool {
			said = regexp.MustCompile("(?m)^.* lost: .*$").
				FindString(p.verb(0, "logs", p.job, "--proc", "0"))
			return said != ""
		}, 2*time.Minute, 50*time.Millisecond)
		return said, fmt.Sprintf(`rank %d .* lost: process %d \(pid %d on h\d\) said nothing for`, p.rank,
			p.rank, pid)
	}},
	{"a device that stands still now and then",
		func(p *planted) string { return fmt.Sprintf("slow=%d@25", p.rank) },
		func(p *planted) (string, string) {
			said := p.nameSlow()
			return said, fmt.Sprintf("rank %d .* computes", p.rank)
		}},
	{"a process that is stopped for most of the time", nil, func(p *planted) (string, string) {
		p.reaches(25)
		defer stops(p.t, p.pid())()
		said := p.nameSlow()
		return said, fmt.Sprintf("rank %d .* (stood still for|computes .* stopped now and then)", p.rank)
	}},
	{"a loader that is slow", func(p *planted) string { return fmt.Sprintf("slowdata=%d@10", p.rank) },
		func(p *planted) (string, string) {
			said := p.nameSlow()
			return said, fmt.Sprintf("rank %d .* waits for its data", p.rank)
		}},
}

// TestClusterWhy plants culprits in jobs of four processes on two hosts, which ones a seed draws, and counts
// how often the right one is named, by why or by an event: always.
//
//lfvet:long what is planted and what must be said, in turn
func TestClusterWhy(t *testing.T) {
	longOnly(t, "culprits that are planted and named: TestWhy and TestStoppedWorker have one of each, "+
		"TestClusterVerbs the verb")
	t.Parallel()
	rounds := 1
	if *long {
		rounds = 13
	} else {
		t.Logf("%d culprits instead of %d: add -long", len(culprits), 13*len(culprits))
	}
	v := newVerbs(t)
	rng := rand.New(rand.NewPCG(14, 7))
	right := 0
	for n := range rounds * len(culprits) {
		c := culprits[n%len(culprits)]
		p := &planted{verbs: v, job: fmt.Sprint(n + 1), dir: filepath.Join(v.dir, fmt.Sprint("run", n)),
			rank: rng.IntN(4), step: 2 + rng.IntN(6)}
		if c.fault != nil {
			p.env = append(p.env[:len(p.env):len(p.env)], "LFACTOR_FAULT="+c.fault(p))
		}
		p.verb(0, append([]string{"train", "run.yaml", "--cluster", "test", "--detach", "plan.procs=4",
			"train.steps=100000", "log.stall=600", "checkpoint.interval=0", "schedule.decay_steps=1000",
			"train.buddy=off",
			"log.dir=" + p.dir, "checkpoint.dir=" + p.dir + "/ckpt"}, widerArgs[:3]...)...)
		p.env = v.env
		said, want := c.named(p)
		ok := regexp.MustCompile(want).MatchString(said)
		if ok {
			right++
		} else {
			text, _ := json.Marshal(p.slow())
			t.Errorf("%s, rank %d: want %s, it is said: %s\nevents: %s", c.kind, p.rank, want, said, text)
		}
		t.Logf("%s of rank %d: %.200s", c.kind, p.rank, said)
		p.verb(0, "stop", p.job, "--now")
	}
	t.Logf("%d of %d culprits are named", right, rounds*len(culprits))
}
