// Package sim is the verb of that name: it parses, calls and prints.
package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/cmd/lfactor/setup"
	"github.com/lfactor/lfactor/cmd/lfactor/virtual"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology/cost"
)

var simFlags = map[string]bool{"help": false, "h": false, "o": true, "output": true, "cluster": true, "schedule": true, "steps": true, "seed": true, "seeds": true,
	"faults": true, "trace": true, "svg": true, "html": true, "collective": true, "jitter": true, "plan": true, "shrink": false, "program": true}

// Command is lfactor sim: a run in virtual time.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "sim FILE.yaml [key=value ...] [--cluster NAME|FILE] [--schedule NAME] [--steps N] [--seeds N --faults KIND,...]",
		Short: "Run the training's actors in virtual time: step time, bubbles, memory, faults, before any device is used",
		Long: `The simulator runs the same behaviours from the same program as training does; jobs become durations of a described machine.

  --cluster C       machine: one that comes with lfactor (` + strings.Join(configs.Clusters(), ", ") + `) or a file; default cpu
  --schedule S      instead of plan.schedule; plan.virtual_stages follows where the schedule fixes it
  --steps N         steps to run, default 2
  --jitter X        jobs take up to this share longer, at random
  --collective M    op: one event a member (default); send: every message of the ring, tree or hierarchy; direct: every member to every other,
                    as training itself does
  --seeds N         run N seeds with faults, each twice, and compare the hashes of all events
  --faults K,...    straggler, slow-link, cut-link, late-loader, crash, crash-restart, lost-message, late-message, duplicate-message
  --program F.csv   a schedule in PyTorch's pipelining notation instead of plan.schedule: one row a rank, one cell an action
  --plan FILE       the settings that lfactor plan --hosts --out has written
  --trace, --svg, --html FILE   timeline of the last step for Perfetto, as a picture, as a report`,
		DisableFlagParsing: true, RunE: simCommand}
	c.AddCommand(&cobra.Command{Use: "replay SEED FILE.yaml [the flags of that run] [--shrink]", Short: "Run one seed again and say what happened",
		Long: "Runs one seed again with the faults that are drawn from it. --shrink looks for the smallest run that fails as it does (fewer faults, steps, ranks and\nmicrobatches, earlier faults) and lists its events.", DisableFlagParsing: true, RunE: simReplay},
		&cobra.Command{Use: "compare SCHEDULE SCHEDULE ... FILE.yaml [flags]", Short: "Simulate several schedules side by side", DisableFlagParsing: true, RunE: simCompare},
		predictCommand(), fidelityCommand(), encoderCommand())
	return c
}

// simRun is what the flags of a simulation mean.
type simRun struct {
	file    string
	rest    []string
	mine    []string
	program string
	form    string
	cluster *cost.Machine
	steps   int64
	seed    uint64
	seeds   int
	kinds   []sim.FaultKind
	trace   string
	svg     string
	html    string
	whole   bool
	sends   bool
	jitter  float64
	layout  *layout.Layout
}

// parseSim reads flags and the machine; the run file is not opened yet.
func parseSim(args []string) (*simRun, []string, error) {
	file, mine, rest := configs.SplitArgs(args, simFlags)
	s := &simRun{file: file, rest: rest, mine: mine, program: cli.FlagValue(mine, "program"), form: cli.Form(mine), steps: 2, trace: cli.FlagValue(mine, "trace"), svg: cli.FlagValue(mine, "svg"), html: cli.FlagValue(mine, "html"), whole: true}
	if name := cli.FlagValue(mine, "schedule"); name != "" {
		s.schedule(name)
	}
	number := func(name string, least float64, set func(float64)) error {
		if v := cli.FlagValue(mine, name); v != "" {
			x, err := strconv.ParseFloat(v, 64)
			if err != nil || !(x >= least) || x > 1e9 {
				return cli.Usage("--%s %s: want a number from %v", name, v, least)
			}
			set(x)
		}
		return nil
	}
	for _, err := range []error{
		number("steps", 1, func(x float64) { s.steps = int64(x) }), number("seeds", 1, func(x float64) { s.seeds = int(x) }),
		number("seed", 0, func(x float64) { s.seed = uint64(x) }), number("jitter", 0, func(x float64) { s.jitter = x }),
	} {
		if err != nil {
			return nil, nil, err
		}
	}
	switch m := cli.FlagValue(mine, "collective"); m {
	case "", "op":
	case "send":
		s.sends = true
	case "direct":
		s.whole = false
	default:
		return nil, nil, cli.Usage("--collective %s: want op, send or direct", m)
	}
	if err := s.faults(cli.FlagValue(mine, "faults")); err != nil {
		return nil, nil, err
	}
	name := cli.FlagValue(mine, "cluster")
	if name == "" {
		name = "cpu"
	}
	text, err := configs.ClusterFile(name)
	if err != nil {
		return nil, nil, err
	}
	s.cluster, err = cost.Read(name, text)
	return s, mine, err
}

func (s *simRun) faults(names string) error {
	for _, name := range strings.Split(names, ",") {
		if name == "" {
			continue
		}
		found := false
		for k := sim.Straggler; k <= sim.Restart; k++ {
			if k.String() == name {
				s.kinds, found = append(s.kinds, k), true
			}
		}
		if !found {
			return cli.Usage("--faults %s: no such fault", name)
		}
	}
	return nil
}

// schedule overrides the run file's.
func (s *simRun) schedule(name string) {
	s.rest = append(s.rest, "plan.schedule="+name)
	if x, err := schedule.Get(name); err == nil && x.Loops > 0 {
		s.rest = append(s.rest, fmt.Sprintf("plan.virtual_stages=%d", x.Loops))
	}
}

// plan reads the run file and lays the job out.
func (s *simRun) plan() error {
	if s.file == "" {
		return cli.Usage("want a run file, as in lfactor sim configs/runs/tiny.yaml --cluster h100")
	}
	cfg, err := setup.Load(s.file, s.mine, s.rest)
	if err != nil {
		return err
	}
	if err = setup.Vocabulary(cfg); err != nil {
		return err
	}
	j, err := setup.Job(cfg)
	if err != nil {
		return err
	}
	if s.program != "" {
		if j.Program, err = openProgram(s.program); err != nil {
			return err
		}
		j.Schedule = s.program
	}
	if s.layout, err = layout.Plan(j); err != nil {
		return cli.Coded(err, cli.ExitUsage)
	}
	if n := s.layout.World(); n > s.cluster.Devices*s.cluster.Hosts {
		return cli.Usage("the plan has %d ranks, cluster %s %d devices", n, s.cluster.Name, s.cluster.Devices*s.cluster.Hosts)
	}
	if j.Memory == 0 {
		j.Memory = int64(s.cluster.Memory)
	}
	return nil
}

// openProgram reads a schedule's table and proves it. Faults name rank and action.
func openProgram(name string) (*plan.Program, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, &configs.Error{File: name, Why: err.Error()}
	}
	defer f.Close()
	p, err := plan.ParseCSV(f)
	if err == nil {
		p = p.Work()
		err = p.Check()
	}
	if err != nil {
		return nil, cli.Coded(fmt.Errorf("%s: %w", name, err), cli.ExitUsage)
	}
	return p, nil
}

func (s *simRun) run(o sim.Options) *sim.Result {
	every := int64(0)
	if slices.ContainsFunc(o.Faults, func(f sim.Fault) bool { return f.Kind == sim.Restart }) {
		every = 1 // what a rank that comes back begins from
	}
	run := core.RunLayout{First: 1, Last: s.steps, SaveEvery: every, LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 { return 0 }}
	o.Whole, o.Jitter = s.whole, s.jitter
	p := virtual.Prices(s.cluster)
	if !s.sends {
		p.Sends = nil
	}
	return sim.New(virtual.Layout(s.layout, run), p, o).Run()
}

func simCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 || slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		return c.Help()
	}
	s, _, err := parseSim(args)
	if err != nil {
		return err
	}
	if err := s.plan(); err != nil {
		return err
	}
	if s.seeds > 0 {
		return s.tryFaults()
	}
	return s.once(s.seed, nil)
}

// once runs one seed and prints what it showed.
func (s *simRun) once(seed uint64, faults []sim.Fault) error {
	t := virtual.Timeline{Layout: s.layout, Last: s.steps}
	var done int64
	res := s.run(sim.Options{Seed: seed, Faults: faults, Span: t.See, Stop: func() bool { return cli.Interrupted.Load() != 0 }, Report: func(m actors.Message) {
		if m.Text == core.TopicStep {
			if done++; s.form == "text" && s.steps > 2 {
				fmt.Fprintf(os.Stderr, "step %d of %d\n", done, s.steps)
			}
		}
	}})
	if err := s.print(res); err != nil {
		return err
	}
	for name, write := range map[string]func(string) error{s.trace: t.Chrome, s.svg: t.SVG, s.html: func(f string) error { return s.page(&t, f, res) }} {
		if name != "" {
			if err := write(name); err != nil {
				return err
			}
		}
	}
	switch {
	case res.Stall != nil:
		return cli.Coded(res.Stall, cli.ExitFailed)
	case strings.Contains(res.Failed, "out of memory"):
		return cli.Coded(fmt.Errorf("the simulated run failed: %s", res.Failed), cli.ExitFit)
	case res.Failed != "":
		return cli.Coded(fmt.Errorf("the simulated run failed: %s", res.Failed), cli.ExitFailed)
	}
	return nil
}

// simRow is one rank of a result; times are seconds of the last step.
type simRow struct {
	Rank   int     `json:"rank"`
	Busy   float64 `json:"busy_s"`
	Bubble float64 `json:"bubble_s"`
	Comm   float64 `json:"exposed_comm_s"`
	Sync   float64 `json:"sync_s"`
	Update float64 `json:"update_s"`
	Peak   int64   `json:"peak_bytes"`
	Fits   bool    `json:"fits"`
}

// Sum is a result as a whole.
type Sum struct {
	Schedule       string   `json:"schedule"`
	Cluster        string   `json:"cluster"`
	Step           float64  `json:"step_s"`
	BubbleLongest  float64  `json:"bubble_longest_stage"`
	BubbleMakespan float64  `json:"bubble_makespan"`
	Events         uint64   `json:"events"`
	Hash           string   `json:"hash"`
	Ranks          []simRow `json:"ranks"`
}

func (s *simRun) sum(res *sim.Result) Sum {
	out := Sum{Schedule: s.layout.Job.Schedule, Cluster: s.cluster.Name, Events: res.Events, Hash: fmt.Sprintf("%016x", res.Hash)}
	if n := len(res.Steps); n > 0 {
		out.Step = res.Steps[n-1].Time / 1e9
	}
	var busy, span, last int64
	for r, a := range res.Ranks {
		busy, span, last = max(busy, a.Busy), max(span, a.Span), max(last, a.Span+a.Bubble)
		out.Ranks = append(out.Ranks, simRow{r, cli.Sec(a.Busy), cli.Sec(a.Bubble), cli.Sec(a.Comm), cli.Sec(a.Sync), cli.Sec(a.Update), res.Peak[r], s.layout.Job.Memory == 0 || res.Peak[r] <= s.layout.Job.Memory})
	}
	if span > 0 {
		out.BubbleLongest = 1 - float64(busy)/float64(span)
	}
	if out.Step > 0 {
		out.BubbleMakespan = 1 - cli.Sec(busy)/out.Step
	}
	return out
}

func (s *simRun) print(res *sim.Result) error {
	sum := s.sum(res)
	if s.form != "text" {
		return json.NewEncoder(os.Stdout).Encode(sum)
	}
	fmt.Printf("%s on %s: step %s; bubble %.2f%% of the longest stage, %.2f%% of the makespan; %d events, hash %s\n", sum.Schedule, sum.Cluster,
		cli.Seconds(sum.Step), 100*sum.BubbleLongest, 100*sum.BubbleMakespan, sum.Events, sum.Hash)
	if res.Cut {
		fmt.Println("interrupted: what follows is partial")
	}
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"rank", "busy", "bubble", "exposed comm", "sync", "update", "peak", ""})
	const shown = 64
	for i, r := range sum.Ranks {
		if i == shown {
			t.AppendRow(table.Row{"…", fmt.Sprintf("%d more", len(sum.Ranks)-shown)})
			break
		}
		fits := "fits"
		if !r.Fits {
			fits = "DOES NOT FIT"
		}
		t.AppendRow(table.Row{r.Rank, cli.Seconds(r.Busy), cli.Seconds(r.Bubble), cli.Seconds(r.Comm), cli.Seconds(r.Sync), cli.Seconds(r.Update), tensor.Bytes(r.Peak), fits})
	}
	t.Render()
	return nil
}

// script draws a seed's faults for a run of the given length.
func (s *simRun) script(seed uint64, length int64) []sim.Fault {
	kinds := s.kinds
	if kinds == nil {
		kinds = []sim.FaultKind{sim.Straggler, sim.SlowLink, sim.LateLoader, sim.LateMsg}
	}
	return sim.Draw(seed, 1+int(seed%3), s.layout.Job.Mesh.Size(), length, kinds...)
}

// tryFaults runs seeds with faults, each twice: both runs must agree in every event, and a run must end well unless its faults
// allow otherwise.
func (s *simRun) tryFaults() error {
	length := int64(s.run(sim.Options{}).Time)
	ended, stalled, failed := 0, 0, 0
	for i := range s.seeds {
		seed := s.seed + uint64(i)
		faults := s.script(seed, length)
		a := s.run(sim.Options{Seed: seed, Faults: faults})
		b := s.run(sim.Options{Seed: seed, Faults: faults})
		if a.Hash != b.Hash {
			return fmt.Errorf("seed %d: two runs differ: %016x and %016x", seed, a.Hash, b.Hash)
		}
		harmless := !slices.ContainsFunc(faults, func(f sim.Fault) bool { return !f.Harmless() })
		switch {
		case a.Stall != nil:
			stalled++
		case a.Failed != "":
			failed++
		default:
			ended++
			continue
		}
		if harmless {
			return fmt.Errorf("seed %d: a run with faults that it must survive did not end: %s; look at it with lfactor sim replay %d --shrink", seed, virtual.Why(a), seed)
		}
		if cli.Interrupted.Load() != 0 {
			break
		}
	}
	fmt.Printf("%d seeds, each twice, no difference: %d runs ended, %d reported a failure, %d a cycle of waits\n", ended+stalled+failed, ended, failed, stalled)
	return nil
}

func simReplay(c *cobra.Command, args []string) error {
	if len(args) < 2 || slices.Contains(args, "--help") {
		return c.Help()
	}
	seed, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return cli.Usage("seed %s: want a whole number", args[0])
	}
	s, mine, err := parseSim(args[1:])
	if err == nil {
		err = s.plan()
	}
	if err != nil {
		return err
	}
	faults := s.script(seed, int64(s.run(sim.Options{}).Time))
	if slices.Contains(mine, "--shrink") {
		return s.shrink(seed, faults)
	}
	for _, f := range faults {
		fmt.Println("fault:", f)
	}
	return s.once(seed, faults)
}

func simCompare(c *cobra.Command, args []string) error {
	n := slices.IndexFunc(args, func(a string) bool {
		_, err := schedule.Get(a)
		return err != nil
	})
	if n < 1 || slices.Contains(args, "--help") {
		return c.Help()
	}
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"schedule", "step", "bubble (longest stage)", "bubble (makespan)", "exposed comm, most", "peak, most", ""})
	for _, name := range args[:n] {
		s, _, err := parseSim(args[n:])
		if err != nil {
			return err
		}
		s.schedule(name)
		if err := s.plan(); err != nil {
			t.AppendRow(table.Row{name, "", "", "", "", "", err.Error()})
			continue
		}
		s.layout.Job.Memory = 0
		res := s.run(sim.Options{})
		if res.Failed != "" || res.Stall != nil {
			return fmt.Errorf("%s: %s", name, virtual.Why(res))
		}
		x, comm, peak, fits := s.sum(res), 0.0, int64(0), "fits"
		for _, r := range x.Ranks {
			comm, peak = max(comm, r.Comm), max(peak, r.Peak)
		}
		if float64(peak) > s.cluster.Memory {
			fits = "DOES NOT FIT"
		}
		t.AppendRow(table.Row{name, cli.Seconds(x.Step), fmt.Sprintf("%.2f%%", 100*x.BubbleLongest), fmt.Sprintf("%.2f%%", 100*x.BubbleMakespan), cli.Seconds(comm), tensor.Bytes(peak), fits})
	}
	t.Render()
	return nil
}

// page writes a report with the picture and the table.
func (s *simRun) page(t *virtual.Timeline, name string, res *sim.Result) error {
	return cli.Create(name, func(w *bufio.Writer) {
		x := s.sum(res)
		fmt.Fprintf(w, "<!doctype html><meta charset=\"utf-8\"><title>%s on %s</title><body style=\"font-family:sans-serif\"><h1>%s on %s</h1>\n", x.Schedule, x.Cluster, x.Schedule, x.Cluster)
		fmt.Fprintf(w, "<p>Step %s; bubble %.2f%% of the longest stage, %.2f%% of the makespan.</p>\n<table border=\"1\" cellpadding=\"4\" style=\"border-collapse:collapse\"><tr><th>rank<th>busy<th>bubble<th>exposed comm<th>sync<th>update<th>peak</tr>\n",
			cli.Seconds(x.Step), 100*x.BubbleLongest, 100*x.BubbleMakespan)
		for _, r := range x.Ranks {
			fmt.Fprintf(w, "<tr><td>%d<td>%s<td>%s<td>%s<td>%s<td>%s<td>%d B</tr>\n", r.Rank, cli.Seconds(r.Busy), cli.Seconds(r.Bubble), cli.Seconds(r.Comm), cli.Seconds(r.Sync), cli.Seconds(r.Update), r.Peak)
		}
		fmt.Fprint(w, "</table>\n<p>Forward blue, backward green, input gradients teal, weight gradients yellow, optimizer step red.</p>\n")
		t.Picture(w)
	})
}
