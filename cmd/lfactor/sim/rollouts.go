package sim

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/rounds"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/sim/rollouts"
)

// RolloutsRow is a staleness with what it gives.
type RolloutsRow struct {
	Staleness int64   `json:"staleness"`
	Samplers  int     `json:"samplers"`
	Step      float64 `json:"step_seconds"`
	Gain      float64 `json:"gain"`    // over the same samplers without staleness
	Waiting   float64 `json:"waiting"` // share of the trainer's time
	Idle      float64 `json:"idle"`    // share of the samplers' time
	Age       int64   `json:"age"`
}

func rolloutsCommand() *cobra.Command {
	c := &cobra.Command{Use: "rollouts [RUN.yaml [key=value ...] --cluster NAME] [flags]",
		Short: "Size samplers against the trainer of a run that draws its answers",
		Long: "The desk that hands answers to samplers runs in virtual time: steps are given for numbers of samplers " +
			"and for\nstaleness, with the shares of time in which the trainer waits for answers and samplers have " +
			"nothing to draw.\nTimes are yours, as a run reports them. With RUN.yaml and --cluster they are those of the " +
			"run's plan and of its model on that\nmachine, where you do not give them.",
		Args: cobra.ArbitraryArgs}
	f := c.Flags()
	w := rollouts.World{Rounds: 200}
	f.IntVar(&w.Groups, "groups", 32, "prompts of a step")
	f.IntVar(&w.Each, "each", 8, "answers to a prompt")
	f.Float64Var(&w.Length, "length", 500, "tokens of an answer: the median")
	f.Float64Var(&w.Spread, "spread", 0.7, "how far lengths lie apart: σ of their logarithm")
	f.Float64Var(&w.Most, "most", 4096, "tokens of an answer at most")
	f.Float64Var(&w.Token, "token", 0.02, "seconds of a token of an answer, beside the others that its sampler draws")
	f.Float64Var(&w.Train, "train", 20, "seconds of a step's training")
	f.Float64Var(&w.Publish, "publish", 1, "seconds in which the trainer gives its weights out")
	f.Float64Var(&w.Load, "load", 1, "seconds in which a sampler takes weights")
	f.Float64Var(&w.Prompt, "prompt", 100, "tokens of a prompt")
	f.IntVar(&w.Hold, "hold", 8, "prompts that a sampler draws answers to at once")
	f.Int64Var(&w.Schedule.Span, "span", 0, "rollout.span")
	f.Uint64Var(&w.Seed, "seed", 1, "of lengths")
	samplers := f.IntSlice("samplers", []int{2, 4, 8}, "numbers of samplers")
	staleness := f.IntSlice("staleness", []int{0, 1, 2, 4}, "values of rollout.staleness")
	var on generation
	on.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := on.times(c, &w, args); err != nil {
			return err
		}
		all, err := sized(w, *samplers, *staleness)
		if err != nil {
			return err
		}
		return cli.Emit(c, all, func(io.Writer) { printRollouts(all) })
	}
	return c
}

// sized simulates every number of samplers with every staleness.
func sized(w rollouts.World, samplers, staleness []int) (all []RolloutsRow, err error) {
	if w.Groups < 1 || w.Each < 1 || w.Hold < 1 || !(w.Length > 0) || !(w.Spread >= 0) || !(w.Token >= 0) ||
		!(w.Train >= 0) || !(w.Publish >= 0) || !(w.Load >= 0) || !(w.Most >= 0) || w.Schedule.Span < 0 {
		return nil, exit.Usagef("sim rollouts: counts are above 0, and times are not negative")
	}
	run := func(n, k int) (rollouts.Result, error) {
		v := w
		v.Samplers, v.Schedule = n, rounds.Schedule{Staleness: int64(k), Updates: 1, Span: w.Schedule.Span}
		if k == 0 {
			v.Schedule.Span = 0
		}
		return rollouts.Run(v)
	}
	for _, n := range samplers {
		if n < 1 || n > 4096 {
			return nil, exit.Usagef("sim rollouts: --samplers %d: want 1 to 4096", n)
		}
		base, err := run(n, 0)
		if err != nil {
			return nil, err
		}
		for _, k := range staleness {
			if k < 0 || k > 64 {
				return nil, exit.Usagef("sim rollouts: --staleness %d: want 0 to 64", k)
			}
			r, err := run(n, k)
			if err != nil {
				return nil, err
			}
			all = append(all, RolloutsRow{Staleness: int64(k), Samplers: n, Step: r.Step, Gain: base.Step / r.Step,
				Waiting: r.Waiting, Idle: r.Idle, Age: r.Age})
		}
	}
	return all, nil
}

func printRollouts(all []RolloutsRow) {
	t := cli.TextTable("samplers", "staleness", "step", "gain", "trainer waits", "samplers rest", "oldest token")
	for _, x := range all {
		t.AppendRow(table.Row{x.Samplers, x.Staleness, unit.Seconds(x.Step), fmt.Sprintf("%.2f", x.Gain),
			fmt.Sprintf("%.0f %%", 100*x.Waiting), fmt.Sprintf("%.0f %%", 100*x.Idle), x.Age})
	}
	t.Render()
}
