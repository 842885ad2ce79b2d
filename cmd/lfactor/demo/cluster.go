package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/deploy"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/topology/machine"
)

// The demos in which processes are killed: each trains once quietly and once disturbed, and holds the two runs
// against each other.

var (
	stepLine    = regexp.MustCompile(`step (\d+)/`)
	samplerLine = regexp.MustCompile(`sampler process: pid (\d+)`) // a run has started a sampler
)

// numberIn is the number that a pattern finds in a line.
func numberIn(line string, pattern *regexp.Regexp) (n int, found bool) {
	m := pattern.FindStringSubmatch(line)
	if m == nil {
		return 0, false
	}
	n, _ = strconv.Atoi(m[1]) // digits, by the pattern
	return n, true
}

// lfactor runs this program, has see look at each line that it says, and waits for it.
func (s *session) lfactor(see func(line string, pid int), args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.CommandContext(s.ctx, self, args...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	lines, err := c.StderrPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	for l := bufio.NewScanner(lines); l.Scan(); {
		fmt.Fprintln(os.Stderr, l.Text())
		see(l.Text(), c.Process.Pid)
	}
	return c.Wait()
}

// kill ends a process at once.
func (s *session) kill(pid int, format string, args ...any) {
	s.say("   kill -9 %d"+format+"\n", append([]any{pid}, args...)...)
	if pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be starting, or have ended
	}
}

// differences lists the tensors that differ between the last checkpoints of the quiet run and the other.
func (s *session) differences() (out []checkpoint.Difference, err error) {
	var readers [2]*checkpoint.Reader
	for i, name := range []string{"quiet", "cluster"} {
		if readers[i], err = checkpoint.Open(s.in(name, "checkpoints")); err != nil {
			return nil, err
		}
		defer readers[i].Close() //nolint:errcheck // it is only read
	}
	if a, b := readers[0].Step(), readers[1].Step(); a != b {
		return nil, fmt.Errorf("the runs ended with steps %d and %d", a, b)
	}
	if len(readers[0].Kinds()) == 0 {
		return nil, errors.New("the checkpoints are empty")
	}
	for _, kind := range readers[0].Kinds() {
		diff, err := checkpoint.Diff(readers[0].Kind(kind), readers[1].Kind(kind))
		if err != nil {
			return nil, err
		}
		out = append(out, diff...)
	}
	return out, nil
}

// cluster trains once quietly, and once on a cluster of four agents of which it kills one after a third of the steps,
// and the head after two thirds.
func (s *session) cluster() (err error) {
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return err
	}
	if err := s.clear("quiet", "cluster", "text", "valid", "tokenizer", "home"); err != nil {
		return err
	}
	c, err := demoCorpus()
	if err != nil {
		return err
	}
	if err := c.write(s.dir); err != nil {
		return err
	}
	file := func(name string) values {
		return values{"at": name + "/", "log": max(1, s.steps/9), "keep": max(1, s.steps/6), "export": false}
	}
	s.say("1. %d steps in one process that nobody disturbs\n", s.steps)
	if _, err := s.train("text.yaml", file("quiet"), run.Options{}); err != nil {
		return err
	}
	s.say("2. the same steps on a cluster: a head and four agents, a process of the run on each\n")
	// Its home is below the demo's folder, so that no other cluster is in its way.
	if err := os.Setenv(user.EnvHome, s.in("home")); err != nil {
		return err
	}
	text, err := s.recipe("text.yaml", file("cluster"))
	if err := errors.Join(err, write(s.in("cluster.yaml"), text)); err != nil {
		return err
	}
	up := deploy.Up{Name: "demo", Say: func(string, ...any) {}}
	cl, err := up.Local(s.ctx, 4, "127.0.0.1")
	if err != nil {
		return err
	}
	defer func() {
		down := deploy.Down(context.WithoutCancel(s.ctx), cl, func(string, ...any) {})
		if err == nil {
			err = down
		}
	}()
	if err := s.onCluster(cl); err != nil {
		return err
	}
	return s.clusterVerdict(cl)
}

// onCluster trains on the cluster, and kills.
func (s *session) onCluster(c *user.Cluster) error {
	plan := []struct {
		after     int
		what, dir string
	}{{s.steps / 3, "the agent of host h3, and with it the process of the run there",
		s.in("home", "clusters", "demo", "agents", "h3")}, {2 * s.steps / 3, "the head", c.Head.Dir}}
	if err := s.lfactor(func(line string, _ int) {
		if n, found := numberIn(line, stepLine); found && len(plan) > 0 && n >= plan[0].after {
			s.kill(machine.Holder(plan[0].dir), ": %s", plan[0].what)
			plan = plan[1:]
		}
	}, "train", s.in("cluster.yaml"), "--cluster", "demo", "plan.procs=4", "train.buddy=4"); err != nil {
		return fmt.Errorf("the run on the cluster: %w", err)
	}
	if len(plan) > 0 {
		return fmt.Errorf("the run ended before %s could be killed: take more --steps", plan[0].what)
	}
	return nil
}

// clusterVerdict shows what the cluster says of it, and holds the weights against each other.
func (s *session) clusterVerdict(c *user.Cluster) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	var events []head.Event
	if err := cl.Lines(s.ctx, "/v1/events",
		func() any { events = append(events, head.Event{}); return &events[len(events)-1] }); err != nil {
		return err
	}
	s.say("3. what the cluster's events say\n")
	for _, e := range events {
		if e.Kind != "queued" {
			s.say("   %s  %-8s %s\n", e.Time.Local().Format("15:04:05.000"), e.Kind, e.Text)
		}
	}
	diff, err := s.differences()
	if err != nil {
		return err
	}
	s.end(map[string]any{"events": events, "different_tensors": len(diff)})
	if len(diff) > 0 {
		return fmt.Errorf("%d tensors differ from the quiet run's, %s first: this is a bug", len(diff), diff[0])
	}
	s.say("4. weights and optimizer state after step %d equal those of the quiet run, bit for bit; %v in all\n",
		s.steps, s.so(time.Second))
	return nil
}

// rlCluster trains on drawn answers once quietly in one process, and once in four, of which it kills some.
func (s *session) rlCluster() error {
	if err := s.clear("texts-run", "texts-checkpoints", "quiet", "cluster", "tokenizer"); err != nil {
		return err
	}
	if err := s.rlTexts(); err != nil {
		return err
	}
	file := func(name string) values { // that of demo --rl, with answers drawn ahead
		return values{"at": name + "/", "ahead": ", staleness: 2, span: 2",
			"kept": fmt.Sprintf("interval: %d, keep: 2", max(1, s.steps/12))}
	}
	s.say("1. %d steps of answers in one process that nobody disturbs\n", s.steps)
	if _, err := s.train("rlanswers.yaml", file("quiet"), run.Options{}); err != nil {
		return err
	}
	s.say("2. the same steps in four processes: three draw answers ahead, one trains\n")
	text, err := s.recipe("rlanswers.yaml", file("cluster"))
	if err := errors.Join(err, write(s.in("cluster.yaml"), text)); err != nil {
		return err
	}
	kills := 0
	for first, over := true, false; !over; first = false {
		if over, err = s.inFour(first, &kills); err != nil {
			return err
		}
	}
	var logs [2][]byte
	for i, name := range []string{"quiet", "cluster"} {
		if logs[i], err = os.ReadFile(s.in(name, "run", rollout.FileName)); err != nil {
			return err
		}
	}
	if !bytes.Equal(logs[0], logs[1]) {
		return errors.New("the logs of answers differ: this is a bug")
	}
	diff, err := s.differences()
	if err != nil {
		return err
	}
	s.end(map[string]any{"kills": kills, "different_tensors": len(diff)})
	if len(diff) > 0 {
		return fmt.Errorf("%d tensors differ from the quiet run's: this is a bug", len(diff))
	}
	s.say("3. after %d kills weights, optimizer state and the log of answers equal those of the quiet run, bit for "+
		"bit; %v in all\n", kills, s.so(time.Second))
	return nil
}

// inFour trains in four processes and kills a sampler in every second step, but 50 at most, and the first time the
// leader in the middle. It reports whether the run has ended.
func (s *session) inFour(first bool, kills *int) (over bool, err error) {
	var samplers []int
	killed, next := false, 0
	err = s.lfactor(func(line string, leader int) {
		if pid, found := numberIn(line, samplerLine); found {
			samplers = append(samplers, pid)
		}
		n, found := numberIn(line, stepLine)
		switch {
		case !found || killed:
		case first && n >= s.steps/2:
			killed = true
			*kills++
			s.kill(leader, " in step %d: the process that trains", n)
		case n >= next && n < s.steps-2 && len(samplers) > 0:
			*kills++
			s.kill(samplers[0], " in step %d: a sampler", n)
			samplers, next = samplers[1:], n+max(2, s.steps/50)
		}
	}, "train", s.in("cluster.yaml"), "rollout.samplers=3", "train.log_interval=1")
	if err != nil && !killed {
		return false, fmt.Errorf("the run in four processes: %w", err)
	}
	return !killed, nil
}
