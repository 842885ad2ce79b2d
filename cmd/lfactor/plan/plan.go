// Package plan is the verb of that name: it parses, calls and prints.
package plan

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology/cost"
	"github.com/lfactor/lfactor/topology/machine"
)

// flags are plan's own; all other words are settings.
var flags = cli.Flags{
	{Name: "cluster", Value: "NAME|FILE", Section: "On which machine",
		Doc:    "with --hosts, or to simulate a step of the run file's own plan: one that comes with lfactor (" + strings.Join(configs.Clusters(), ", ") + ") or a file; cpu where it is not said",
		Values: cli.Clusters},
	cli.SoftwareFlag,
	{Name: "explain", Section: "Of the run file's own plan",
		Doc: "what a step is made of on the machine: kernels and what bounds them, waiting, exchanges; with --hosts that of the best plan, and what other choices cost"},
	{Name: "tensors",
		Doc: "decide for each tensor that blocks keep for their backward whether it stays, goes to host memory or is computed again: what takes least time on the machine within its memory or plan.memory"},
	{Name: "precision", Value: "auto|NAME",
		Doc:    "which recipe of train.low_precision, or the named one for which weights, makes the shortest step on the machine: products at the rates of its description, and what rounding reads and writes",
		Values: func() []string { return precisionNames() }},
	{Name: "program", Doc: "print the run file's program as a table"},
	{Name: "hosts", Value: "N[xG]", Section: "Another plan",
		Doc:    "find the best plan for N hosts (with G devices each; as many as the cluster has where that is not said): tensor, pipeline and data parallelism, ZeRO, schedule, stages a rank, microbatches and recomputation. All are ranked by closed forms, the best 64 again by simulation of their own programs",
		Values: func() []string { return nil }},
	{Name: "max-length",
		Doc: "the longest sequence that can be trained on the machine (one host where --hosts is not said), and by which plans"},
	{Name: "out", Value: "FILE",
		Doc: "write the best plan, or with --tensors what was decided; lfactor train FILE.yaml --plan FILE carries it out"},
	{Name: "schedules", Doc: "list the schedules"},
}

// Command is lfactor plan: what each rank holds, or the best plan for a machine.
func Command() *cobra.Command {
	return flags.On(&cobra.Command{Use: "plan FILE.yaml [key=value ...] [flags]",
		Short: "Show what each rank holds and whether it fits, or find the fastest plan for a machine",
		Long: "Without --hosts: what each rank of the run file's own plan holds, before anything is allocated; exit code 3 where it does " +
			"not fit.",
		Example: `  lfactor plan run.yaml plan.pp=2 plan.tp=2
  lfactor plan run.yaml --cluster h100 --hosts 16 --out plan.yaml
  lfactor plan run.yaml --cluster h100 --max-length`,
		RunE: planCommand})
}

// planRow is one rank of a plan.
type planRow struct {
	Rank        int   `json:"rank"`
	PP          int   `json:"pp"`
	DP          int   `json:"dp"`
	CP          int   `json:"cp"`
	TP          int   `json:"tp"`
	Stages      []int `json:"stages"`
	Parameters  int64 `json:"parameters"`
	ParamBytes  int64 `json:"param_bytes"`
	StateBytes  int64 `json:"state_bytes"`
	AwayBytes   int64 `json:"host_state_bytes,omitempty"` // optimizer state that waits on the host
	GradBytes   int64 `json:"gradient_bytes"`
	Activations int64 `json:"activation_bytes"`
	Total       int64 `json:"total_bytes"`
	Worst       int64 `json:"worst_total_bytes"` // whatever the routing of experts
	Fits        bool  `json:"fits"`
}

// planned is a plan as a whole; docs/json.md describes the names that scripts may rely on.
type planned struct {
	StepFlops   float64   `json:"step_flops"`
	StepSeconds float64   `json:"step_seconds,omitempty"` // simulated on Cluster; none where the plan does not fit there
	MFU         float64   `json:"mfu,omitempty"`
	PeakBytes   int64     `json:"peak_bytes"`
	Cluster     string    `json:"cluster,omitempty"`
	Fits        bool      `json:"fits"`
	CopyBytes   int64     `json:"copy_bytes,omitempty"` // of the largest rank's state, where ranks keep copies in memory for recovery
	CopyHeld    int64     `json:"copy_held,omitempty"`  // bytes of copies that the process with most of them holds
	CopyEvery   int64     `json:"copy_every,omitempty"` // steps between copies: train.buddy, or for auto an estimate by StepSeconds
	Ranks       []planRow `json:"ranks"`

	Explained *rehearsal.Explanation `json:"explanation,omitempty"` // of a step, with --explain
}

// copyRate is bytes a second that a copy of a rank's state takes of its process's time, with sending it to a
// buddy: about what memory and TLS allow on one core each. A run measures it.
const copyRate = 0.8e9

// copies fills in what recovery takes. On is the machine, nil where each process counts as on a host of its own.
func (p *planned) copies(l *layout.Layout, cfg *configs.Config, on *cost.Machine) {
	t := &cfg.Run.Train
	if cfg.Run.Plan.Procs < 2 || t.Restarts == 0 || t.Keep() == 0 {
		return
	}
	held := make([]int64, cfg.Run.Plan.Procs)
	var hosts []string
	for r := 0; on != nil && r < l.World(); r++ {
		if l.Owner(r, len(held)) == len(hosts) {
			hosts = append(hosts, fmt.Sprint(on.Host(r)))
		}
	}
	for r, buddies := range l.Buddies(len(held), hosts) {
		m := l.Memory(r)
		n := m.Params + m.State + m.Away
		p.CopyBytes = max(p.CopyBytes, n)
		for _, at := range append(buddies, r) { // the ones before are held until all have new ones
			held[l.Owner(at, len(held))] += 2 * n
		}
	}
	p.CopyHeld = slices.Max(held)
	if p.CopyEvery = t.Keep(); p.CopyEvery < 0 {
		p.CopyEvery = 0
		if p.StepSeconds > 0 {
			p.CopyEvery = core.KeepPeriod(float64(p.CopyBytes)/copyRate, p.StepSeconds)
		}
	}
}

// notOwn reports whether flags ask for something else than the run file's own plan.
func notOwn(flags []string) bool {
	return cli.FlagValue(flags, "precision") != "" || slices.ContainsFunc(flags, func(f string) bool {
		return f == "--max-length" || f == "--schedules" || f == "--program" || f == "--tensors"
	})
}

// otherPlan carries out a flag that asks for something else than the run file's own plan. If no flag does,
// own is true and nothing has been printed.
func otherPlan(ctx context.Context, form, file string, mine, rest []string) (own bool, err error) {
	switch has := func(flag string) bool { return slices.Contains(mine, flag) }; {
	case has("--schedules"):
		return false, cli.EmitAs(cli.Out, form, schedule.Trainable(),
			func(w io.Writer) { fmt.Fprintln(w, strings.Join(schedule.Trainable(), "\n")) })
	case has("--max-length"):
		return false, maxLength(ctx, file, mine, rest)
	case cli.FlagValue(mine, "precision") != "":
		return false, choosePrecision(ctx, form, file, mine, rest)
	case has("--tensors"):
		return false, chooseTensors(ctx, form, file, mine, rest)
	case cli.FlagValue(mine, "hosts") != "":
		return false, findPlan(ctx, file, mine, rest)
	}
	return true, nil
}

// planCommand prints where everything of a run lies and whether it fits. It reads its own flags
// itself, because all others are settings of the run.
func planCommand(c *cobra.Command, args []string) error {
	file, mine, rest := configs.SplitArgs(args, flags.Own())
	explain := slices.Contains(mine, "--explain")
	switch {
	case slices.Contains(mine, "--help") || slices.Contains(mine, "-h"):
		return c.Help()
	case explain && notOwn(mine):
		return exit.Usagef("--explain: it explains a step of the run file's own plan, or with --hosts the best that is found")
	}
	form, err := cli.Form(mine)
	if err != nil {
		return err
	}
	if cli.FlagValue(mine, "cluster")+cli.FlagValue(mine, "software") != "" {
		_, name, settings, err := cli.OnMachine(mine, rest)
		if err != nil {
			return err
		}
		mine, rest = append([]string{"--cluster=" + name}, mine...), settings
	}
	if own, err := otherPlan(c.Context(), form, file, mine, rest); !own || err != nil {
		return err
	}
	cfg, err := configs.Load(configs.Request{File: file, Args: rest, Getenv: os.Getenv})
	if err != nil {
		return err
	}
	cli.Notes(cfg.Notices)
	if err := setup.Vocabulary(cfg); err != nil {
		return err
	}
	j, err := layout.FromConfig(cfg)
	if err != nil {
		return err
	}
	cluster := cli.FlagValue(mine, "cluster")
	m, unknown := rehearsal.Machine(cmp.Or(cluster, "cpu"))
	if unknown == nil {
		rehearsal.PriceOn(j, m)
	}
	l, err := layout.New(j)
	if err != nil {
		return exit.With(err, exit.Usage)
	}
	if slices.Contains(mine, "--program") {
		return cli.EmitAs(cli.Out, form, strings.Split(strings.TrimSpace(l.Program.String()), "\n"),
			func(w io.Writer) { fmt.Fprint(w, l.Program) })
	}
	fits := fit(cfg, l, cluster, m)
	p := planned{StepFlops: l.StepFlops(), Fits: fits == nil, Ranks: planRows(l)}
	for _, r := range p.Ranks {
		p.PeakBytes = max(p.PeakBytes, r.Total)
	}
	limit := l.Design.Memory
	if fits == nil && (cluster != "" || form == "json" || explain) {
		err := unknown
		if err == nil {
			err = p.simulate(c.Context(), l, m, explain)
		}
		if err != nil && (cluster != "" || explain) {
			return err
		}
	}
	p.copies(l, cfg, map[bool]*cost.Machine{true: m}[cluster != ""])
	if err := printPlan(form, l, limit, &p); err != nil {
		return err
	}
	return fits
}

// fit holds a plan to the memory of a machine, of this one where cluster is "", and says what to change
// where it needs more; m is nil for a machine that is not known.
func fit(cfg *configs.Config, l *layout.Layout, cluster string, m *cost.Machine) error {
	room, price := machine.MemoryShare, func(*layout.Design) {}
	if m != nil {
		price = func(j *layout.Design) { rehearsal.PriceOn(j, m) }
	}
	if cluster != "" && m != nil {
		room = func(int) int64 { return int64(m.Least()) }
	}
	if b := int64(cfg.Run.Plan.Memory); b > 0 {
		room = func(int) int64 { return b }
	}
	if cluster == "" || m != nil {
		l.Budget(room(l.World()))
	}
	return l.Fits(func() string { return layout.Remedy(cfg, room, price) })
}

// simulate prices a step on a described machine, if the plan fits there, and explains it if asked.
func (p *planned) simulate(ctx context.Context, l *layout.Layout, m *cost.Machine, explain bool) error {
	r, err := rehearsal.Of(l, rehearsal.Options{Machine: m})
	if err != nil {
		return err
	}
	res := r.Run(sim.Options{Stop: func() bool { return ctx.Err() != nil }})
	if err := rehearsal.Fault(res); err != nil {
		return err
	}
	sum := r.Summary(res)
	p.Cluster, p.StepSeconds, p.MFU = m.Under(), sum.StepSeconds, sum.MFU
	if explain {
		p.Explained, err = r.Explain(sim.Options{})
	}
	return err
}

// planRows is the memory of each rank, for the report.
func planRows(l *layout.Layout) (rows []planRow) {
	for r, part := range l.Ranks {
		m := l.Memory(r)
		row := planRow{Rank: r, PP: part.Coord.PP, DP: part.Coord.DP, CP: part.Coord.CP, TP: part.Coord.TP,
			Stages: part.Stages, ParamBytes: m.Params, StateBytes: m.State, AwayBytes: m.Away, GradBytes: m.Grads,
			Activations: max(m.Activations, m.Update), Total: m.Total(), Worst: m.WorstTotal()}
		for _, p := range part.All {
			row.Parameters += int64(tensor.Len(p.Local))
		}
		row.Fits = l.Design.Memory == 0 || row.Worst <= l.Design.Memory
		rows = append(rows, row)
	}
	return
}

func printPlan(form string, l *layout.Layout, limit int64, p *planned) error {
	switch form {
	case "json":
		return cli.PrintJSON(p)
	case "jsonl":
		return cli.EmitAs(cli.Out, form, p.Ranks, nil)
	}
	t := cli.TextTable("rank", "pp", "dp", "cp", "tp", "blocks", "parameters", "weights", "optimizer", "gradients",
		"activations", "peak", "worst routing", "")
	if l.WorstShare() == 1 { // routing decides nothing
		t.SetColumnConfigs([]table.ColumnConfig{{Name: "worst routing", Hidden: true}})
	}
	for _, r := range p.Ranks {
		fits := "fits"
		if !r.Fits {
			fits = "DOES NOT FIT (" + tensor.Bytes(limit) + ")"
		}
		var blocks []string
		for _, s := range r.Stages {
			blocks = append(blocks, fmt.Sprintf("%d-%d", l.Stages[s].From, l.Stages[s].To-1))
		}
		t.AppendRow(table.Row{r.Rank, r.PP, r.DP, r.CP, r.TP, strings.Join(blocks, " "),
			unit.Count(float64(r.Parameters)), tensor.Bytes(r.ParamBytes), tensor.Bytes(r.StateBytes),
			tensor.Bytes(r.GradBytes), tensor.Bytes(r.Activations), tensor.Bytes(r.Total), tensor.Bytes(r.Worst), fits})
	}
	t.Render()
	fmt.Fprintln(cli.Out, "memory is that of tensors: on a processor a process holds up to 192 MiB beside them, twice that where it "+
		"decodes pictures, and a copy of parameters and state while it saves")
	if away := slices.MaxFunc(p.Ranks, func(a, b planRow) int {
		return cmp.Compare(a.AwayBytes, b.AwayBytes)
	}).AwayBytes; away > 0 {
		fmt.Fprintf(cli.Out, "plan.offload_optimizer: up to %s of a rank's optimizer state waits on the host\n",
			tensor.Bytes(away))
	}
	if l.Design.FixedPoint {
		grads := int64(0)
		for _, r := range p.Ranks {
			grads = max(grads, r.GradBytes)
		}
		moved := int64(l.Design.Micro) * grads / 8 * 20 // a number of 4 bytes is read and one of 8 read and written
		fmt.Fprintf(cli.Out, "train.reproducible: gradients of a rank take and send %s more than in float32, and a step "+
			"adds %s of memory traffic (%d microbatches)\n", tensor.Bytes(grads/2), tensor.Bytes(moved), l.Design.Micro)
	}
	if p.CopyBytes > 0 {
		every := "as often as takes a hundredth of the time"
		if p.CopyEvery > 0 {
			every = fmt.Sprintf("about every %d step(s)", p.CopyEvery)
		}
		fmt.Fprintf(cli.Out, "recovery: copies of a rank's state are up to %s, made %s; a process holds "+
			"up to %s of them (train.buddy)\n", tensor.Bytes(p.CopyBytes), every, tensor.Bytes(p.CopyHeld))
	}
	if p.StepSeconds > 0 {
		fmt.Fprintf(cli.Out, "on %s: step %s by simulation, %.3g FLOP, mfu %.1f %%\n", p.Cluster,
			unit.Seconds(p.StepSeconds), p.StepFlops, 100*p.MFU)
	}
	if p.Explained != nil {
		p.Explained.Print(cli.Out)
	}
	return nil
}
