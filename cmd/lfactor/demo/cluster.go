package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/deploy"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/topology/machine"
)

// clusterSteps are enough to kill an agent after a third of them and the head after two thirds.
const clusterSteps = 60

// clusterDemo trains once quietly, and once on a cluster of four agents of which it kills one, and then
// the head.
type clusterDemo struct {
	ctx   context.Context
	dir   string
	steps int
	out   io.Writer
	c     *user.Cluster
	began time.Time
}

func demoCluster(ctx context.Context, dir string, steps int, show *shown) (err error) {
	d := &clusterDemo{ctx: ctx, steps: steps, out: show.out, began: time.Now()}
	if d.dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := d.prepare(); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "1. %d steps in one process that nobody disturbs\n", steps)
	if err := d.quiet(); err != nil {
		return err
	}
	fmt.Fprintln(d.out, "2. the same steps on a cluster: a head and four agents, a process of the run "+
		"on each")
	if err := d.up(); err != nil {
		return err
	}
	defer func() {
		down := deploy.Down(context.WithoutCancel(ctx), d.c, func(string, ...any) {})
		if err == nil {
			err = down
		}
	}()
	if err := d.disturbed(); err != nil {
		return err
	}
	return d.verdict(show)
}

// prepare writes corpus, tokenizer and run files.
func (d *clusterDemo) prepare() error {
	for _, sub := range []string{"quiet", "cluster", "text", "valid", "tokenizer", "home"} {
		if err := os.RemoveAll(filepath.Join(d.dir, sub)); err != nil {
			return err
		}
	}
	c, err := demoCorpus()
	if err != nil {
		return err
	}
	in := func(name ...string) string { return filepath.Join(append([]string{d.dir}, name...)...) }
	if err := c.write(d.dir); err != nil {
		return err
	}
	for _, name := range []string{"quiet", "cluster"} {
		text := fmt.Sprintf(demoConfig, demoVocab, in("text"), in("valid"), in("tokenizer"), d.steps,
			d.steps, max(1, d.steps/9),
			in(name, "checkpoints"), max(1, d.steps/6), in(name, "run"))
		if err := os.WriteFile(in(name+".yaml"), []byte(strings.Replace(text, ", save_hf: true", "", 1)),
			0o644); err != nil {
			return err
		}
	}
	return nil
}

// quiet is the run that the other has to equal.
func (d *clusterDemo) quiet() error {
	cfg, err := configs.Load(configs.Request{File: filepath.Join(d.dir, "quiet.yaml")})
	if err != nil {
		return err
	}
	cfg.Notices = nil
	return run.Train(d.ctx, cfg, run.Options{Progress: os.Stderr})
}

// up makes the cluster, in a home below the demo's directory so that no other is in its way.
func (d *clusterDemo) up() (err error) {
	if err := os.Setenv(user.EnvHome, filepath.Join(d.dir, "home")); err != nil {
		return err
	}
	u := deploy.Up{Name: "demo", Say: func(string, ...any) {}}
	d.c, err = u.Local(d.ctx, 4, "127.0.0.1")
	return err
}

var stepLine = regexp.MustCompile(`step (\d+)/`)

// disturbed trains on the cluster, and kills.
func (d *clusterDemo) disturbed() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.CommandContext(d.ctx, self, "train", filepath.Join(d.dir, "cluster.yaml"), "--cluster", "demo",
		"plan.procs=4", "train.buddy=4")
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	lines, err := c.StderrPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	plan := []struct {
		after int
		what  string
		dir   string
	}{
		{d.steps / 3, "the agent of host h3, and with it the process of the run there",
			filepath.Join(d.dir, "home", "clusters", "demo", "agents", "h3")},
		{2 * d.steps / 3, "the head", d.c.Head.Dir},
	}
	for s := bufio.NewScanner(lines); s.Scan(); {
		fmt.Fprintln(os.Stderr, s.Text())
		m := stepLine.FindStringSubmatch(s.Text())
		if m == nil || len(plan) == 0 {
			continue
		}
		if n, _ := strconv.Atoi(m[1]); n >= plan[0].after { // digits, by the pattern
			pid := machine.Holder(plan[0].dir)
			fmt.Fprintf(d.out, "   kill -9 %d: %s\n", pid, plan[0].what)
			if pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may be starting
			}
			plan = plan[1:]
		}
	}
	if err := c.Wait(); err != nil {
		return fmt.Errorf("the run on the cluster: %w", err)
	}
	if len(plan) > 0 {
		return fmt.Errorf("the run ended before %s could be killed: take more --steps", plan[0].what)
	}
	return nil
}

// verdict shows what the cluster says of it, and holds the weights against each other.
func (d *clusterDemo) verdict(show *shown) error {
	cl, err := d.c.Client()
	if err != nil {
		return err
	}
	var events []head.Event
	if err := cl.Lines(d.ctx, "/v1/events",
		func() any { events = append(events, head.Event{}); return &events[len(events)-1] }); err != nil {
		return err
	}
	fmt.Fprintln(d.out, "3. what the cluster's events say")
	for _, e := range events {
		if e.Kind != "queued" {
			fmt.Fprintf(d.out, "   %s  %-8s %s\n", e.Time.Local().Format("15:04:05.000"), e.Kind, e.Text)
		}
	}
	diff, err := d.compare()
	if err != nil {
		return err
	}
	show.result = map[string]any{"steps": d.steps, "events": events, "different_tensors": len(diff),
		"seconds": time.Since(d.began).Seconds()}
	if len(diff) > 0 {
		return fmt.Errorf("%d tensors differ from the quiet run's, %s first: this is a bug", len(diff),
			diff[0])
	}
	fmt.Fprintf(d.out, "4. weights and optimizer state after step %d equal those of the quiet run, bit "+
		"for bit; %v in all\n", d.steps,
		time.Since(d.began).Round(time.Second))
	return nil
}

// compare lists the tensors that differ between the last checkpoints of the two runs.
func (d *clusterDemo) compare() (out []checkpoint.Difference, err error) {
	var readers [2]*checkpoint.Reader
	for i, name := range []string{"quiet", "cluster"} {
		if readers[i], err = checkpoint.Open(filepath.Join(d.dir, name, "checkpoints")); err != nil {
			return nil, err
		}
		defer readers[i].Close()
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
