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
	"strings"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// rlClusterSteps are enough to kill samplers, and the leader in the middle.
const rlClusterSteps = 40

// samplerLine is how a run says that it has started a sampler.
var samplerLine = regexp.MustCompile(`sampler process: pid (\d+)`)

// rlCluster trains on drawn answers once quietly in one process, and once in four, of which it kills some.
type rlCluster struct {
	ctx   context.Context
	in    func(string) string
	steps int
	show  *shown
	kills int
}

// demoRLCluster is demo --rl --cluster.
func demoRLCluster(ctx context.Context, dir string, steps int, show *shown) error {
	began := time.Now()
	d := &rlCluster{ctx: ctx, in: func(name string) string { return filepath.Join(dir, name) },
		steps: steps, show: show}
	for _, sub := range []string{"texts-run", "texts-checkpoints", "quiet", "cluster", "tokenizer"} {
		if err := os.RemoveAll(d.in(sub)); err != nil {
			return err
		}
	}
	if err := rlData(d.in); err != nil {
		return err
	}
	if err := rlTrain(ctx, fmt.Sprintf(rlTexts, d.in("model.yaml"), d.in("texts.jsonl"),
		d.in("tokenizer"), rlTextSteps,
		d.in("texts-checkpoints"), d.in("texts-run"))); err != nil {
		return err
	}
	fmt.Fprintf(show.out, "1. %d steps of answers in one process that nobody disturbs\n", steps)
	if err := rlTrain(ctx, d.file("quiet")); err != nil {
		return err
	}
	fmt.Fprintln(show.out, "2. the same steps in four processes: three draw answers ahead, one trains")
	if err := os.WriteFile(d.in("cluster.yaml"), []byte(d.file("cluster")), 0o644); err != nil {
		return err
	}
	for life := 0; ; life++ {
		over, err := d.disturbed(life)
		if err != nil {
			return err
		}
		if over {
			break
		}
	}
	diff, err := d.compare()
	if err != nil {
		return err
	}
	show.result = map[string]any{"steps": steps, "kills": d.kills, "different_tensors": diff,
		"seconds": time.Since(began).Seconds()}
	if diff > 0 {
		return fmt.Errorf("%d tensors differ from the quiet run's: this is a bug", diff)
	}
	fmt.Fprintf(show.out,
		"3. after %d kills weights, optimizer state and the log of answers equal those of the quiet run, bit "+
			"for bit; %v in all\n", d.kills, time.Since(began).Round(time.Second))
	return nil
}

// file is the run file of a run: that of demo --rl, with answers drawn ahead.
func (d *rlCluster) file(name string) string {
	text := fmt.Sprintf(rlAnswers, filepath.Join(d.in("texts-checkpoints"), "release_hf_weights"),
		d.in("prompts.jsonl"),
		d.steps, max(1, d.steps/6), filepath.Join(d.in(name), "checkpoints"), filepath.Join(d.in(name), "run"))
	text = strings.Replace(text, "max_tokens: 4}", "max_tokens: 4, staleness: 2, span: 2}", 1)
	return strings.Replace(text, "interval: 100000, keep: 1, save_hf: true",
		fmt.Sprintf("interval: %d, keep: 2",
			max(1, d.steps/12)), 1)
}

// disturbed trains in four processes, kills a sampler in every second step, but 50 at most, and the leader
// once; it reports whether the run has ended.
func (d *rlCluster) disturbed(life int) (over bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	c := exec.CommandContext(d.ctx, self, "train", d.in("cluster.yaml"), "rollout.samplers=3",
		"train.log_interval=1")
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	lines, err := c.StderrPipe()
	if err != nil {
		return false, err
	}
	if err := c.Start(); err != nil {
		return false, err
	}
	var samplers []int
	killed, next := false, 0
	for s := bufio.NewScanner(lines); s.Scan(); {
		fmt.Fprintln(os.Stderr, s.Text())
		if m := samplerLine.FindStringSubmatch(s.Text()); m != nil {
			pid, _ := strconv.Atoi(m[1]) // digits, by the pattern
			samplers = append(samplers, pid)
		}
		m := stepLine.FindStringSubmatch(s.Text())
		if m == nil {
			continue
		}
		switch n, _ := strconv.Atoi(m[1]); { // digits, by the pattern
		case killed:
		case life == 0 && n >= d.steps/2:
			fmt.Fprintf(d.show.out, "   kill -9 %d in step %d: the process that trains\n", c.Process.Pid, n)
			killed = true
			d.kills++
			_ = c.Process.Kill() // it may have ended
		case n >= next && n < d.steps-2 && len(samplers) > 0:
			pid := samplers[0]
			samplers, next = samplers[1:], n+max(2, d.steps/50)
			fmt.Fprintf(d.show.out, "   kill -9 %d in step %d: a sampler\n", pid, n)
			d.kills++
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	err = c.Wait()
	if killed {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("the run in four processes: %w", err)
	}
	return true, nil
}

// compare counts the tensors that differ between the last checkpoints of the two runs, and looks at their
// logs.
func (d *rlCluster) compare() (different int, err error) {
	var readers [2]*checkpoint.Reader
	var logs [2][]byte
	for i, name := range []string{"quiet", "cluster"} {
		if readers[i], err = checkpoint.Open(filepath.Join(d.in(name), "checkpoints")); err != nil {
			return 0, err
		}
		defer readers[i].Close() //nolint:errcheck // it is only read
		if logs[i], err = os.ReadFile(filepath.Join(d.in(name), "run", run.RolloutsName)); err != nil {
			return 0, err
		}
	}
	if !bytes.Equal(logs[0], logs[1]) {
		return 0, errors.New("the logs of answers differ: this is a bug")
	}
	if readers[0].Step() != readers[1].Step() || len(readers[0].Kinds()) == 0 {
		return 0, errors.New("the runs ended with different steps")
	}
	for _, kind := range readers[0].Kinds() {
		diff, err := checkpoint.Diff(readers[0].Kind(kind), readers[1].Kind(kind))
		if err != nil {
			return 0, err
		}
		different += len(diff)
	}
	return different, nil
}
