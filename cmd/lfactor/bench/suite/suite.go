// Package suite is a fixed list of tasks that says how fast a machine trains: tasks of speed, each beside the
// least time or the greatest rate that the machine could have, and tasks of quality, whose time counts only
// where a target is met. Every task is a command of lfactor in a process of its own.
package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lfactor/lfactor/topology/machine"
)

// Score is what one run of a task gives.
type Score struct {
	Value float64 // in the task's unit; of a task of quality the seconds
	Floor float64 // the best that the machine could have by its measured peaks; 0 where none is known
	// Quality is what a task of quality reached
	Quality float64
}

// Task is one of the suite.
type Task struct {
	Name, Doc string
	Args      func(dir string) []string // of lfactor; dir is a folder of the task's own
	Unit      string
	Less      bool    // a smaller value is better
	Target    float64 // the least quality with which the time counts, 0 for tasks of speed
	Quality   string  // what the quality is
	Read      func(out []byte) (Score, error)
}

// Result is a task's runs.
type Result struct {
	Task    string    `json:"task"`
	Unit    string    `json:"unit"`
	Values  []float64 `json:"values"`
	Median  float64   `json:"median"`
	Floor   float64   `json:"floor,omitempty"`    // of the run that the median is
	OfFloor float64   `json:"of_floor,omitempty"` // how much of what the machine could do that is
	Quality float64   `json:"quality,omitempty"`  // the least of all runs
	Target  float64   `json:"target,omitempty"`
	Passed  bool      `json:"passed"`
	Why     string    `json:"why,omitempty"` // it did not
}

// Machine is what the suite ran on.
type Machine struct {
	Processor string  `json:"processor"`
	Cores     int     `json:"cores"`
	Memory    int64   `json:"memory_bytes"`
	OS        string  `json:"os"`
	Kernels   string  `json:"kernels"`                 // the level of instructions
	FP32      float64 `json:"fp32_flops"`              // a core's measured peak
	BF16      float64 `json:"bf16_flops"`              // likewise
	Bandwidth float64 `json:"memory_bytes_per_second"` // likewise
}

// Report is one run of the suite: a line of the leaderboard.
type Report struct {
	Date    string   `json:"date"` // RFC 3339, UTC
	Version string   `json:"version"`
	Name    string   `json:"name,omitempty"` // who it is, as they say
	Machine Machine  `json:"machine"`
	Runs    int      `json:"runs"`
	Results []Result `json:"results"`
	Others  float64  `json:"others"` // the share of the processors that other programs had before it began
}

// Options are how the suite is run.
type Options struct {
	Program string   // lfactor
	Dir     string   // of what tasks write
	Only    []string // names of tasks; none for all
	Runs    int      // of tasks of speed; the median counts
	Name    string
	Version string
	Threads int
	Now     time.Time
	Others  float64
	Tell    func(what string, done, all int)
	Run     func(ctx context.Context, program string, args []string) ([]byte, error) // nil begins a process
}

// Run carries out the tasks, one after another. A task that fails is in the report with its reason; an error
// is what kept the suite from going on.
func Run(ctx context.Context, o Options) (*Report, error) {
	tasks, err := chosen(o.Only, o.Threads)
	if err != nil {
		return nil, err
	}
	if o.Run == nil {
		o.Run = process
	}
	r := &Report{Date: o.Now.UTC().Format(time.RFC3339), Version: o.Version, Name: o.Name, Runs: o.Runs,
		Others: o.Others}
	if r.Machine, err = describe(ctx, o); err != nil {
		return nil, err
	}
	all, done := 0, 0
	for _, t := range tasks {
		all += t.runs(o)
	}
	for _, t := range tasks {
		x := Result{Task: t.Name, Unit: t.Unit, Target: t.Target, Passed: true}
		var floors []Score
		for i := range t.runs(o) {
			o.Tell(fmt.Sprintf("%s, run %d of %d", t.Name, i+1, t.runs(o)), done, all)
			s, err := t.once(ctx, o, i)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if done++; err != nil {
				x.Passed, x.Why = false, err.Error()
				continue
			}
			floors = append(floors, s)
			x.Values = append(x.Values, s.Value)
		}
		x.sum(t, floors)
		r.Results = append(r.Results, x)
	}
	return r, nil
}

// runs of a task: one of quality is its own repetition, of thousands of steps.
func (t Task) runs(o Options) int {
	if t.Target > 0 {
		return 1
	}
	return o.Runs
}

func (t Task) once(ctx context.Context, o Options, run int) (Score, error) {
	args := append(t.Args(filepath.Join(o.Dir, t.Name+"-"+strconv.Itoa(run))), "-o", "json")
	out, err := o.Run(ctx, o.Program, args)
	if err != nil {
		return Score{}, err
	}
	s, err := t.Read(out)
	if err != nil {
		return s, fmt.Errorf("lfactor %s: %w", strings.Join(args, " "), err)
	}
	return s, nil
}

// sum takes the median, and whether the target was met.
func (x *Result) sum(t Task, runs []Score) {
	if len(runs) == 0 {
		return
	}
	slices.SortFunc(runs, func(a, b Score) int {
		switch {
		case a.Value < b.Value:
			return -1
		case a.Value > b.Value:
			return 1
		}
		return 0
	})
	m := runs[len(runs)/2]
	x.Median, x.Floor, x.Quality = m.Value, m.Floor, runs[0].Quality
	for _, s := range runs {
		x.Quality = min(x.Quality, s.Quality)
	}
	if m.Floor > 0 {
		x.OfFloor = m.Value / m.Floor
		if t.Less {
			x.OfFloor = m.Floor / m.Value
		}
	}
	if t.Target > 0 && x.Quality < t.Target {
		x.Passed, x.Why = false, fmt.Sprintf("%s %.3g, and the time counts from %.3g on", t.Quality, x.Quality, t.Target)
	}
}

// process runs a command and gives what it writes; what it says on the way is in the error if it fails.
func process(ctx context.Context, program string, args []string) ([]byte, error) {
	c := exec.CommandContext(ctx, program, args...)
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	if err := c.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return nil, fmt.Errorf("lfactor %s: %w: %s", strings.Join(args, " "), err, lines[len(lines)-1])
	}
	return out.Bytes(), nil
}

// chosen are the tasks of these names, all for none.
func chosen(only []string, threads int) (out []Task, err error) {
	all := Tasks(threads)
	var names []string
	for _, t := range all {
		names = append(names, t.Name)
		if len(only) == 0 || slices.Contains(only, t.Name) {
			out = append(out, t)
		}
	}
	for _, n := range only {
		if !slices.Contains(names, n) {
			return nil, fmt.Errorf("no task is named %q; there are %s", n, strings.Join(names, ", "))
		}
	}
	return out, nil
}

// describe measures the machine's peaks.
func describe(ctx context.Context, o Options) (m Machine, err error) {
	o.Tell("the machine's peaks", 0, 0)
	out, err := o.Run(ctx, o.Program, []string{"bench", "peak", "-o", "json"})
	if err != nil {
		return m, err
	}
	var p struct {
		Level     string  `json:"level"`
		FP32      float64 `json:"multiply_add_flops"`
		BF16      float64 `json:"bf16_flops"`
		Bandwidth float64 `json:"memory_bytes_per_second"`
	}
	if err := json.Unmarshal(out, &p); err != nil {
		return m, fmt.Errorf("lfactor bench peak: %w", err)
	}
	return Machine{Processor: processor(), Cores: runtime.NumCPU(), Memory: machine.MemoryLimit("/"), OS: runtime.GOOS +
		"/" + runtime.GOARCH, Kernels: p.Level, FP32: p.FP32, BF16: p.BF16, Bandwidth: p.Bandwidth}, nil
}

var errNothing = errors.New("it printed nothing that a score could be read from")

// processor is the name that the system has for the processor.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH // another system
	}
	for line := range strings.Lines(string(text)) {
		if name, of, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(of)
		}
	}
	return runtime.GOARCH
}
