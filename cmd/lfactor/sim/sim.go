// Package sim is the verb of that name: it parses, calls and prints.
package sim

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/machine"
)

// Command is lfactor sim: a run in virtual time.
func Command() *cobra.Command {
	c := simFlags.On(&cobra.Command{Use: "sim FILE.yaml [key=value ...] [flags]",
		Short: "Run the training's actors in virtual time: step time, bubbles, memory, faults, before " +
			"any device is used",
		Long: "The simulator runs the same behaviours from the same program as training does; jobs become durations of a " +
			"described machine.",
		Example: `  lfactor sim run.yaml --cluster h100 --svg step.svg
  lfactor sim compare 1f1b zb-h1 interleaved run.yaml
  lfactor sim run.yaml --seeds 1000 --faults crash,straggler`,
		RunE: simCommand})
	c.AddCommand(&cobra.Command{Use: "replay SEED FILE.yaml [the flags of that run] [--shrink]",
		Short: "Run one seed again and say what happened", Long: "Runs one seed again with " +
			"the faults that are drawn from it. --shrink looks for the smallest run that fails as it " +
			"does (fewer faults, steps, ranks and\nmicrobatches, earlier faults) and lists its events.",
		DisableFlagParsing: true, ValidArgsFunction: simFlags.Complete, RunE: simReplay}, &cobra.Command{
		Use: "compare SCHEDULE SCHEDULE ... FILE.yaml [flags]", Short: "Simulate several schedules side by side",
		DisableFlagParsing: true, ValidArgsFunction: simFlags.Complete, RunE: simCompare}, predictCommand(),
		fidelityCommand(), encoderCommand(), denoiserCommand(), rolloutsCommand(), serveCommand(), overlapCommand(), diffCommand(), daysCommand())
	return c
}

// simRun is what the flags of a simulation mean.
type simRun struct {
	file    string
	rest    []string
	mine    []string
	program string
	form    string
	o       rehearsal.Options
	seed    uint64
	seeds   int
	kinds   []sim.FaultKind
	trace   string
	svg     string
	html    string
	r       *rehearsal.Rehearsal
	routed  *rehearsal.Routed
}

// parseSim reads flags and the machine; the run file is not opened yet.
func parseSim(args []string) (*simRun, []string, error) {
	file, mine, rest := configs.SplitArgs(args, simFlags.Own())
	s := &simRun{file: file, rest: rest, mine: mine, program: cli.FlagValue(mine, "program"),
		trace: cli.FlagValue(mine, "trace"), svg: cli.FlagValue(mine, "svg"),
		html: cli.FlagValue(mine, "html"), o: rehearsal.Options{Steps: 2}}
	var err error
	if s.form, err = cli.Form(mine); err != nil {
		return nil, nil, err
	}
	if name := cli.FlagValue(mine, "schedule"); name != "" {
		s.schedule(name)
	}
	number := func(name string, least float64, set func(float64)) error {
		if v := cli.FlagValue(mine, name); v != "" {
			x, err := strconv.ParseFloat(v, 64)
			if err != nil || !(x >= least) || x > 1e9 {
				return exit.Usagef("--%s %s: want a number from %v", name, v, least)
			}
			set(x)
		}
		return nil
	}
	for _, err := range []error{
		number("steps", 1, func(x float64) { s.o.Steps = int64(x) }),
		number("seeds", 1, func(x float64) { s.seeds = int(x) }),
		number("seed", 0, func(x float64) { s.seed = uint64(x) }),
		number("jitter", 0, func(x float64) { s.o.Jitter = x }),
	} {
		if err != nil {
			return nil, nil, err
		}
	}
	switch m := cli.FlagValue(mine, "collective"); m {
	case "", "op":
	case "send":
		s.o.Sends = true
	case "direct":
		s.o.Direct = true
	default:
		return nil, nil, exit.Usagef("--collective %s: want op, send or direct", m)
	}
	switch m := cli.FlagValue(mine, "sends"); m {
	case "", "beside":
	case "wait":
		s.o.Wait = true
	default:
		return nil, nil, exit.Usagef("--sends %s: want beside or wait", m)
	}
	if err := s.faults(cli.FlagValue(mine, "faults")); err != nil {
		return nil, nil, err
	}
	return s, mine, s.machine()
}

// machine reads the machine and its software, whose settings stand below the run file's.
func (s *simRun) machine() (err error) {
	s.o.Machine, _, s.rest, err = cli.OnMachine(s.mine, s.rest)
	return err
}

// faults reads the kinds of faults to simulate, separated by commas.
func (s *simRun) faults(names string) error {
	for _, name := range strings.Split(names, ",") {
		if name == "" {
			continue
		}
		k, ok := sim.FaultNamed(name)
		if !ok {
			return exit.Usagef("--faults %s: no such fault; there are %s", name, strings.Join(sim.FaultNames(), ", "))
		}
		s.kinds = append(s.kinds, k)
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

// plan reads the run file and lays it out.
func (s *simRun) plan() error {
	if s.file == "" {
		return exit.Usagef("want a run file, as in lfactor sim configs/runs/tiny.yaml --cluster h100")
	}
	if s.program != "" && s.o.Program == nil {
		p, note, err := rehearsal.OpenProgram(s.program)
		if err != nil {
			return err
		}
		if note != "" {
			fmt.Fprintln(os.Stderr, "note: "+note)
		}
		s.o.Program, s.o.ProgramName = p, s.program
	}
	cfg, err := setup.Config(s.file, cli.FlagValue(s.mine, "plan"), s.rest, false)
	if err != nil {
		return err
	}
	cli.Notes(cfg.Notices)
	if s.r, err = rehearsal.New(cfg, s.o); err != nil {
		return err
	}
	if dir := cli.FlagValue(s.mine, "routing"); dir != "" {
		s.routed, err = s.r.Replay(cfg, dir)
	}
	return err
}

// simCommand simulates one run, or many seeds with faults, each twice to see that nothing but the seed decides.
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
	if s.seeds == 0 {
		if err := s.idle("one run without faults; see --seeds, and lfactor sim replay", "faults", "shrink"); err != nil {
			return err
		}
		return s.once(c.Context(), s.seed, nil)
	}
	if err := s.idle("many runs, whose faults hit single ranks", "trace", "svg", "html", "explain", "fold", "shrink"); err != nil {
		return err
	}
	see, end := cli.Tell(c.ErrOrStderr(), "simulating seeds, each twice")
	defer end()
	t, err := s.r.TryFaults(c.Context(), s.seed, s.seeds, s.kinds,
		func(done int) { see("simulating seeds, each twice", done, s.seeds) })
	if err != nil {
		return err
	}
	return cli.EmitAs(cli.Out, s.form, t, func(w io.Writer) {
		fmt.Fprintf(w, "%d seeds, each twice, no difference: %d runs ended, %d reported a failure, %d a cycle "+
			"of waits; hash of all events %s\n", t.Ended+t.Stalled+t.Failed, t.Ended, t.Failed, t.Stalled, t.Hash)
	})
}

// idle refuses flags that do nothing where what is simulated is these runs.
func (s *simRun) idle(runs string, flags ...string) error {
	for _, flag := range flags {
		if cli.FlagValue(s.mine, flag) != "" || slices.Contains(s.mine, "--"+flag) {
			return exit.Usagef("--%s has no effect: this is %s", flag, runs)
		}
	}
	return nil
}

// once runs one seed and prints what it showed.
func (s *simRun) once(ctx context.Context, seed uint64, faults []sim.Fault) error {
	t := rehearsal.Timeline{Layout: s.r.Layout, Last: s.o.Steps}
	var see func(sim.Span) // jobs that somebody wants to see come in turn
	if s.trace+s.svg+s.html != "" {
		see = t.See
	}
	var x *rehearsal.Explainer
	if slices.Contains(s.mine, "--explain") {
		var err error
		if x, err = s.r.NewExplainer(); err != nil {
			return err
		}
		line := see
		see = func(j sim.Span) {
			if x.See(j); line != nil {
				line(j)
			}
		}
	}
	var done int64
	fold := slices.Contains(s.mine, "--fold")
	res := s.r.Run(sim.Options{Seed: seed, Faults: faults, Fold: fold, Span: see, Stop: func() bool {
		return ctx.Err() != nil
	}, Report: func(m actors.Message) {
		if m.Text == core.TopicStep {
			if done++; s.form == "text" && s.o.Steps > 2 {
				fmt.Fprintf(os.Stderr, "step %d of %d\n", done, s.o.Steps)
			}
		}
	}})
	if fold {
		fmt.Fprintln(os.Stderr, "note: "+rehearsal.Folded(res))
	}
	if err := s.print(res, x); err != nil {
		return err
	}
	for name, write := range map[string]func(string) error{s.trace: t.Chrome, s.svg: t.SVG,
		s.html: func(f string) error { return s.page(&t, f, res) }} {
		if name != "" {
			if err := write(name); err != nil {
				return err
			}
		}
	}
	return rehearsal.Fault(res)
}

func (s *simRun) print(res *sim.Result, x *rehearsal.Explainer) error {
	sum := s.r.Summary(res)
	sum.Routing = s.routed
	if x != nil && rehearsal.Fault(res) == nil {
		sum.Explained = x.Explain(res)
	}
	if s.form != "text" {
		return json.NewEncoder(cli.Out).Encode(sum)
	}
	step := unit.Seconds(sum.Step)
	if sum.P10 > 0 {
		step += fmt.Sprintf(" (%s to %s in eight of ten)", unit.Seconds(sum.P10), unit.Seconds(sum.P90))
	}
	fmt.Fprintf(cli.Out, "%s on %s: step %s; bubble %.2f%% of the longest stage, %.2f%% of the makespan; "+
		"%d events, hash %s\n", sum.Schedule, s.r.Machine.Under(), step, 100*sum.BubbleLongest,
		100*sum.BubbleMakespan, sum.Events, sum.Hash)
	if res.Cut {
		fmt.Fprintln(cli.Out, "interrupted: what follows is partial")
	}
	t := cli.TextTable("rank", "busy", "bubble", "exposed comm", "sync", "update", "peak", "")
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
		t.AppendRow(table.Row{r.Rank, unit.Seconds(r.Busy), unit.Seconds(r.Bubble), unit.Seconds(r.Comm),
			unit.Seconds(r.Sync), unit.Seconds(r.Update), tensor.Bytes(r.Peak), fits})
	}
	t.Render()
	if s.routed != nil {
		fmt.Fprintln(cli.Out, s.routed)
	}
	if sum.Explained != nil {
		sum.Explained.Print(cli.Out)
	}
	return nil
}

// simReplay repeats the faults of a seed, or with --shrink looks for the smallest case that fails.
func simReplay(c *cobra.Command, args []string) error {
	if len(args) == 0 || slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		return c.Help()
	}
	if len(args) < 2 {
		return exit.Usagef("want a seed and a run file, as in lfactor sim replay 7 run.yaml")
	}
	seed, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return exit.Usagef("seed %s: want a whole number", args[0])
	}
	s, mine, err := parseSim(args[1:])
	if err == nil {
		err = s.plan()
	}
	if err != nil {
		return err
	}
	if err := s.idle("the run of the seed that is named first", "seed", "seeds", "fold"); err != nil {
		return err
	}
	faults := s.r.Script(seed, int64(s.r.Run(sim.Options{}).Time), s.kinds)
	if slices.Contains(mine, "--shrink") {
		if err := s.idle("many smaller runs", "trace", "svg", "html", "explain"); err != nil {
			return err
		}
		return s.shrink(c.Context(), seed, faults)
	}
	for _, f := range faults {
		if s.form == "text" {
			fmt.Fprintln(cli.Out, "fault:", f)
		} else {
			fmt.Fprintln(os.Stderr, "fault:", f)
		}
	}
	return s.once(c.Context(), seed, faults)
}

// comparison is one schedule beside others.
type comparison struct {
	rehearsal.Summary
	Comm  float64 `json:"exposed_comm_s"` // the most of any rank
	Fits  bool    `json:"fits"`
	Error string  `json:"error,omitempty"` // why it cannot be simulated
}

func simCompare(c *cobra.Command, args []string) error {
	if len(args) == 0 || slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		return c.Help()
	}
	n := slices.IndexFunc(args, func(a string) bool {
		return strings.HasPrefix(a, "-") || strings.Contains(a, "=") || machine.Exists(a) ||
			strings.HasSuffix(a, ".yaml")
	})
	if n < 1 {
		return exit.Usagef(
			"sim compare: want schedules and then a run file, as in lfactor sim compare 1f1b zb-h1 run.yaml",
		)
	}
	for _, name := range args[:n] {
		if _, err := schedule.Get(name); err != nil {
			return exit.With(fmt.Errorf("sim compare: %w", err), exit.Usage)
		}
	}
	if slices.Contains(args, "--explain") {
		return exit.Usagef("--explain: it explains one schedule, and compare has several")
	}
	var all []comparison
	var failed []error
	form := ""
	for _, name := range args[:n] {
		s, err := compared(name, args[n:])
		if s == nil {
			return err
		}
		form = s.form
		if err != nil {
			failed = append(failed, err)
			all = append(all, comparison{Summary: rehearsal.Summary{Schedule: name}, Error: err.Error()})
			continue
		}
		s.r.Layout.Design.Memory = 0
		res := s.r.Run(sim.Options{Fold: slices.Contains(s.mine, "--fold")})
		if res.Failed != "" || res.Stall != nil {
			return fmt.Errorf("%s: %s", name, rehearsal.Why(res))
		}
		x := comparison{Summary: s.r.Summary(res)}
		for _, r := range x.Ranks {
			x.Comm = max(x.Comm, r.Comm)
		}
		x.Fits = float64(x.PeakBytes) <= s.o.Machine.Least()
		all = append(all, x)
	}
	if len(failed) == len(all) { // it is not the schedules
		return failed[0]
	}
	return cli.EmitAs(cli.Out, form, all, func(io.Writer) { printComparison(all) })
}

// compared lays a run out under a schedule. With one stage a rank, schedules for any number are 1F1B: where nothing
// says how many, they get two. Without a simRun the flags are wrong.
func compared(name string, args []string) (*simRun, error) {
	for _, loops := range []string{"", "plan.virtual_stages=2"} {
		s, _, err := parseSim(args)
		if err != nil {
			return nil, err
		}
		if loops != "" {
			s.rest = append(s.rest, loops)
			fmt.Fprintf(os.Stderr,
				"note: %s with one stage a rank is 1f1b: %s is taken; set it to choose another\n", name, loops)
		}
		s.schedule(name)
		x, known := schedule.Get(name)
		if err := s.plan(); err != nil || known != nil || x.Loops != 0 || s.r.Layout.Design.Loops > 1 ||
			loops != "" || s.r.Layout.Design.Mesh.Len(topology.PP) == 1 {
			return s, err
		}
	}
	panic("sim: a schedule is laid out at most twice")
}

func printComparison(all []comparison) {
	t := cli.TextTable("schedule", "step", "bubble (longest stage)", "bubble (makespan)",
		"exposed comm, most", "peak, most", "")
	for _, x := range all {
		fits := "fits"
		switch {
		case x.Error != "":
			t.AppendRow(table.Row{x.Schedule, "", "", "", "", "", x.Error})
			continue
		case !x.Fits:
			fits = "DOES NOT FIT"
		}
		t.AppendRow(table.Row{x.Schedule, unit.Seconds(x.Step), fmt.Sprintf("%.2f%%", 100*x.BubbleLongest),
			fmt.Sprintf("%.2f%%", 100*x.BubbleMakespan), unit.Seconds(x.Comm), tensor.Bytes(x.PeakBytes), fits})
	}
	t.Render()
}

// page writes a report with the drawing and the table.
func (s *simRun) page(t *rehearsal.Timeline, name string, res *sim.Result) error {
	return machine.Create(name, func(w *bufio.Writer) {
		x := s.r.Summary(res)
		fmt.Fprintf(w, "<!doctype html><meta charset=\"utf-8\"><title>%s on %s</title><body "+
			"style=\"font-family:sans-serif\"><h1>%s on %s</h1>\n", x.Schedule, x.Cluster, x.Schedule, x.Cluster)
		fmt.Fprintf(w, "<p>Step %s; bubble %.2f%% of the longest stage, "+
			"%.2f%% of the makespan.</p>\n<table border=\"1\" cellpadding=\"4\" "+
			"style=\"border-collapse:collapse\"><tr><th>rank<th>busy<th>bubble<th>exposed "+
			"comm<th>sync<th>update<th>peak</tr>\n", unit.Seconds(x.Step), 100*x.BubbleLongest, 100*x.BubbleMakespan)
		for _, r := range x.Ranks {
			fmt.Fprintf(w, "<tr><td>%d<td>%s<td>%s<td>%s<td>%s<td>%s<td>%d B</tr>\n", r.Rank, unit.Seconds(r.Busy),
				unit.Seconds(r.Bubble), unit.Seconds(r.Comm), unit.Seconds(r.Sync), unit.Seconds(r.Update), r.Peak)
		}
		fmt.Fprint(w, "</table>\n<p>Forward blue, backward green, input gradients teal, weight "+
			"gradients yellow, optimizer step red.</p>\n")
		t.Draw(w)
	})
}
