package bench

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/bench/rates"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
)

func planBench() *cobra.Command {
	c := &cobra.Command{Use: "plan", Short: "Plans a second: by closed forms, and by simulation",
		Args: cobra.NoArgs, Long: "Looks for the best plan of Qwen2.5-72B on 64 hosts of 8 H100: 8,000 plans " +
			"by closed forms, the best 64 by simulation of their programs.\nTracing the model's blocks is timed apart."}
	runs := c.Flags().Int("runs", 5, "runs; the median counts")
	c.RunE = func(c *cobra.Command, _ []string) error {
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		if *runs < 1 {
			return exit.Usagef("--runs %d: want at least 1", *runs)
		}
		see, end := cli.Tell(c.ErrOrStderr(), "listing plans")
		defer end()
		var all []rates.PlanRate
		for i := range *runs {
			x, err := rates.Plans(func(what string, done, all int) {
				see(fmt.Sprintf("run %d of %d: %s", i+1, *runs, what), done, all)
			})
			if err != nil {
				return err
			}
			all = append(all, x)
		}
		x := all[0]
		median := func(of func(rates.PlanRate) float64) float64 {
			var v []float64
			for _, a := range all {
				v = append(v, of(a))
			}
			slices.Sort(v)
			return v[len(v)/2]
		}
		x.Trace, x.Closed = median(func(a rates.PlanRate) float64 { return a.Trace }),
			median(func(a rates.PlanRate) float64 { return a.Closed })
		x.List = median(func(a rates.PlanRate) float64 { return a.List })
		x.Simulate = median(func(a rates.PlanRate) float64 { return a.Simulate })
		if form != "text" {
			return cli.PrintJSON(x)
		}
		fmt.Fprintf(cli.Out, "%d plans listed in %s, %d priced by closed forms in %s (%.0f a second), "+
			"%d simulated in %s, blocks traced in %s; medians of %d\n", x.Listed, unit.Seconds(x.List),
			x.Plans, unit.Seconds(x.Closed), float64(x.Plans)/x.Closed,
			x.Simulated, unit.Seconds(x.Simulate), unit.Seconds(x.Trace), *runs)
		return nil
	}
	return c
}

func simBench() *cobra.Command {
	c := &cobra.Command{Use: "sim", Short: "Simulated events a second on one core and on all, beside a bare heap",
		Args: cobra.NoArgs, Long: "One training step of a described model with every rank an actor: tensor " +
			"parallelism 8, interleaved pipelines of two stages a rank, 16\nmicrobatches. An event is a message, " +
			"timer or job end that a behaviour of actors/core handles; memory tracking and trace hash are on. The " +
			"bare heap is an event loop of\nas many actors that do nothing, by turns with the steps. On all cores " +
			"replicas run at once, with the same events. Folded is a step in which ranks that do the same run once: " +
			"the events of all ranks a second.", Example: "  lfactor bench sim --ranks 1024,65536 --runs 3"}
	ranks := c.Flags().IntSlice("ranks", []int{1024, 16384}, "sizes")
	runs := c.Flags().Int("runs", 5, "runs of each size; the median counts")
	c.RunE = func(c *cobra.Command, _ []string) error {
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		if *runs < 1 {
			return exit.Usagef("--runs %d: want at least 1", *runs)
		}
		see, end := cli.Tell(c.ErrOrStderr(), "simulating")
		defer end()
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		var all []rates.EventRate
		for _, n := range *ranks {
			mesh, err := rates.EventMesh(n)
			if err != nil {
				return exit.With(fmt.Errorf("--ranks: %w", err), exit.Usage)
			}
			x, err := rates.Events(mesh, *runs, see)
			if err != nil {
				return err
			}
			all = append(all, x)
		}
		if form != "text" {
			return cli.PrintJSON(all)
		}
		t := cli.TextTable("ranks", "mesh", "events a step", "median of a step", "events/s", "of processor time",
			"best", "bare heap", "ratio", fmt.Sprintf("on %d cores", runtime.NumCPU()), "folded", "process")
		for _, x := range all {
			t.AppendRow(table.Row{x.Ranks, x.Mesh, x.Events, unit.Seconds(x.Seconds), fmt.Sprintf("%.2f M", x.Rate/1e6),
				fmt.Sprintf("%.2f M", x.CPURate/1e6), fmt.Sprintf("%.2f M", x.Best/1e6),
				fmt.Sprintf("%.2f M", x.Bare/1e6), fmt.Sprintf("%.2f", x.Ratio), fmt.Sprintf("%.2f M", x.All/1e6),
				fmt.Sprintf("%.0f M", x.Folded/1e6), fmt.Sprintf("%.2f GiB", float64(x.PeakRSS)/(1<<30))})
		}
		t.Render()
		return nil
	}
	return c
}
