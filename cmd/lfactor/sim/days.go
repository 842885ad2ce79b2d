package sim

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/days"
	"github.com/lfactor/lfactor/sim/rehearsal"
)

// dayTimes are the flags of times: where each goes, and what it is where it is not said.
var dayTimes = []struct {
	name, usual, doc string
	at               func(w *days.World) *float64
}{
	{"mtbf", "50000h", "of a device: how long one runs until it, or what belongs to it, ends the job's step; 0 for ever",
		func(w *days.World) *float64 { return &w.MTBF }},
	{"planned", "0s", "from one planned interruption to the next, as for updates; 0: there is none",
		func(w *days.World) *float64 { return &w.Planned }},
	{"checkpoint", "10m", "from one checkpoint to the next", func(w *days.World) *float64 { return &w.Interval }},
	{"save", "", "for which a checkpoint keeps devices from training; else that of a copy of a rank's state to host memory",
		func(w *days.World) *float64 { return &w.Save }},
	{"durable", "1m", "until a checkpoint is on disk", func(w *days.World) *float64 { return &w.Durable }},
	{"restart", "10m", "from a loss to the next step: it is noticed, the host is replaced, programs start, weights are read",
		func(w *days.World) *float64 { return &w.Restart }},
	{"repair", "24h", "until a host that was lost is back", func(w *days.World) *float64 { return &w.Repair }},
}

// dayFlags are those of sim days.
var dayFlags = func() (all cli.Flags) {
	for _, name := range []string{"cluster", "software", "schedule", "plan"} {
		i := slices.IndexFunc(simFlags, func(f cli.Flag) bool { return f.Name == name })
		all = append(all, simFlags[i])
	}
	all = append(all, cli.Flag{Name: "hosts", Value: "N", Doc: "of the cluster, which the plan must fill", Values: nothing},
		cli.Flag{Name: "spares", Value: "N", Section: "What happens", Doc: "hosts that wait to replace lost ones; enough where it is not " +
			"said", Values: nothing},
		cli.Flag{Name: "away", Value: "X", Doc: "share of losses that take a host away for repair; 0.25 where it is not said",
			Values: nothing},
		cli.Flag{Name: "seed", Value: "N", Doc: "of losses, the first of 32 that are averaged; 1 where it is not said", Values: nothing})
	for _, t := range dayTimes {
		doc := t.doc
		if t.usual != "" {
			doc += "; " + t.usual + " where it is not said"
		}
		all = append(all, cli.Flag{Name: t.name, Value: "TIME", Doc: doc, Values: nothing})
	}
	return all
}()

// Days is what weeks of a run give.
type Days struct {
	Days      float64 `json:"days"`
	Devices   int     `json:"devices"`
	Step      float64 `json:"step_seconds"`
	Save      float64 `json:"save_seconds"`
	Interval  float64 `json:"checkpoint_seconds"`
	Effective float64 `json:"effective"`
	days.Result
	Least float64 `json:"goodput_least"` // of the seeds
	Most  float64 `json:"goodput_most"`
	// Intervals between checkpoints: the best of those that were simulated, its goodput, and two closed forms.
	Best        float64  `json:"best_checkpoint_seconds"`
	BestGoodput float64  `json:"best_goodput"`
	Young       float64  `json:"young_seconds"`
	Daly        float64  `json:"daly_seconds"`
	SparesTo    int      `json:"spares_needed"` // for a goodput within 0.1 points of that with enough of them
	Dollars     *float64 `json:"dollars,omitempty"`
	KWh         *float64 `json:"kwh,omitempty"`
}

// daySeeds are how many worlds are averaged.
const daySeeds = 32

func daysCommand() *cobra.Command {
	return dayFlags.On(&cobra.Command{Use: "days DAYS FILE.yaml [key=value ...] [flags]",
		Short: "Run weeks of training with losses in virtual time: goodput, interruptions, checkpoint interval, spares",
		Long: "One step is simulated as by lfactor sim, one rank for all that do the same; steps between two losses are all alike. " +
			"A loss takes all steps\nbehind the newest durable checkpoint, a restart, and a spare host or a wait for one. Figures are " +
			"means over 32 seeds.",
		Example: "  lfactor sim days 54 docs/examples/llama3-405b.yaml --cluster h100 --hosts 2048 --mtbf 50000h --planned 27h30m",
		RunE:    simDays})
}

func simDays(c *cobra.Command, args []string) error {
	if len(args) == 0 || slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		return c.Help()
	}
	n, err := strconv.ParseFloat(args[0], 64)
	if err != nil || !(n > 0) || n > 3660 {
		return exit.Usagef("sim days: %s: want a number of days above 0, as in lfactor sim days 54 run.yaml", args[0])
	}
	s := &simRun{o: rehearsal.Options{Steps: 2}}
	s.file, s.mine, s.rest = configs.SplitArgs(args[1:], dayFlags.Own())
	if s.form, err = cli.Form(s.mine); err != nil {
		return err
	}
	if name := cli.FlagValue(s.mine, "schedule"); name != "" {
		s.schedule(name)
	}
	if err := s.machine(); err != nil {
		return err
	}
	w, hosts, err := dayWorld(s.mine)
	if err == nil {
		s.o.Machine.Hosts = cmp.Or(hosts, s.o.Machine.Hosts)
		err = s.plan()
	}
	if err != nil {
		return err
	}
	l, m := s.r.Layout, s.r.Machine
	if w.Devices = l.World(); hosts > 0 && w.Devices != hosts*m.Devices {
		return exit.Usagef("sim days: the plan has %d ranks, and --hosts %d are %d devices; set plan.dp, or --hosts %d", w.Devices,
			hosts, hosts*m.Devices, (w.Devices+m.Devices-1)/m.Devices)
	}
	res := s.r.Run(sim.Options{Fold: true, Stop: func() bool { return c.Context().Err() != nil }})
	if err := rehearsal.Fault(res); err != nil {
		return err
	}
	w.Time, w.Step = n*86400, s.r.Summary(res).Step
	if w.Save < 0 { // the longest copy of what a rank keeps
		for rank := range w.Devices / max(1, l.Design.Mesh.Replicas()) {
			of := l.Memory(rank)
			w.Save = max(w.Save, float64(of.Params+of.State)/cmp.Or(m.Copy, m.Bandwidth))
		}
	}
	x := Days{Days: n, Devices: w.Devices, Step: w.Step, Save: w.Save, Interval: w.Interval}
	x.Result, x.Least, x.Most = days.Mean(w, daySeeds)
	x.Effective = x.Result.Effective()
	x.Best, x.BestGoodput = days.Best(w, daySeeds/4)
	all := w.MTBF / float64(w.Devices)
	x.Young, x.Daly, x.SparesTo = days.Young(w.Save, all), days.Daly(w.Save, all), days.Needed(w, daySeeds/4)
	used := 24 * n * float64((w.Devices+m.Devices-1)/m.Devices+max(0, w.Spares))
	if v := used * m.Price; v > 0 {
		x.Dollars = &v
	}
	if v := used * m.Power; v > 0 {
		x.KWh = &v
	}
	return cli.EmitAs(cli.Out, s.form, x, func(out io.Writer) { printDays(out, &x, w) })
}

// dayWorld reads the flags.
func dayWorld(mine []string) (w days.World, hosts int, err error) {
	w.Spares, w.Away, w.Seed, w.Save = -1, 0.25, 1, -1
	for _, f := range []struct {
		name        string
		least, most float64
		set         func(float64)
	}{{"hosts", 1, 1 << 20, func(x float64) { hosts = int(x) }}, {"spares", 0, 1 << 20, func(x float64) { w.Spares = int(x) }},
		{"away", 0, 1, func(x float64) { w.Away = x }}, {"seed", 0, 1 << 53, func(x float64) { w.Seed = uint64(x) }}} {
		if v := cli.FlagValue(mine, f.name); v != "" {
			x, err := strconv.ParseFloat(v, 64)
			if err != nil || !(x >= f.least && x <= f.most) || f.name != "away" && x != math.Trunc(x) {
				return w, 0, exit.Usagef("--%s %s: want a number from %v to %v", f.name, v, f.least, f.most)
			}
			f.set(x)
		}
	}
	for _, t := range dayTimes {
		v := cmp.Or(cli.FlagValue(mine, t.name), t.usual)
		if v == "" {
			continue
		}
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 || t.name == "checkpoint" && d == 0 {
			return w, 0, exit.Usagef("--%s %s: want a time, as 10m or 50000h", t.name, v)
		}
		*t.at(&w) = d.Seconds()
	}
	return w, hosts, nil
}

func printDays(out io.Writer, x *Days, w days.World) {
	span := func(s float64) string { return time.Duration(s * 1e9).Round(time.Second).String() }
	fmt.Fprintf(out, "%g days on %d devices, a step of %.3f s, a checkpoint every %s that takes %.2f s of it (means of %d seeds)\n",
		x.Days, x.Devices, x.Step, span(x.Interval), x.Save, daySeeds)
	fmt.Fprintf(out, "goodput %.2f %% (%.2f to %.2f): %d steps count; steps ran in %.2f %% of the time\n", 100*x.Goodput, 100*x.Least,
		100*x.Most, x.Steps, 100*x.Effective)
	fmt.Fprintf(out, "%d interruptions, %d of them planned; taken again %.2f %%, checkpoints %.2f %%, restarts %.2f %%, waiting for "+
		"hosts %.2f %%\n", x.Unexpected+x.Planned, x.Planned, 100*x.Again, 100*x.Saves, 100*x.Restarts, 100*x.Waiting)
	if w.MTBF > 0 {
		fmt.Fprintf(out, "best is a checkpoint every %s: goodput %.2f %%; Young says %s, Daly %s\n", span(x.Best), 100*x.BestGoodput,
			span(x.Young), span(x.Daly))
		fmt.Fprintf(out, "%d spare hosts are enough; %d were away at once\n", x.SparesTo, x.HostsAway)
	}
	if x.Dollars != nil {
		fmt.Fprintf(out, "%.0f dollars\n", *x.Dollars)
	}
	if x.KWh != nil {
		fmt.Fprintf(out, "%.0f kWh\n", *x.KWh)
	}
}
