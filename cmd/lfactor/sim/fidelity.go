package sim

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/sim/fidelity"
)

func fidelityCommand() *cobra.Command {
	c := &cobra.Command{Use: "fidelity",
		Short: "Compare the simulator with the real host, step time and memory, plan by plan",
		Args:  cobra.NoArgs,
		Long: "Two sets of plans run for real and in the simulator: 2 ranks that compute, each pinned " +
			"to a core, and 8 ranks on devices whose jobs last their\nmodelled time, so that bubbles " +
			"are real on few cores. Each set is calibrated once, on a plan that is not in it. Other " +
			"programs disturb it."}
	n := c.Flags().Int("plans", 6, "how many plans of each set to run")
	every := c.Flags().Bool("every", false, "instead, every schedule that runs with 4, 16 and 64 microbatches, "+
		"and with chunks those that have some, on 4 ranks whose jobs last their modelled time")
	c.RunE = func(c *cobra.Command, _ []string) error {
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		var all []fidelity.Row
		sets := []*fidelity.Set{&fidelity.PinnedSet, &fidelity.PacedSet}
		if *every {
			sets = []*fidelity.Set{fidelity.EverySchedule()}
			if !c.Flags().Changed("plans") {
				*n = len(sets[0].Plans)
			}
		}
		for _, set := range sets {
			what, rows, err := set.Compare(max(0, min(*n, len(set.Plans))))
			if err != nil {
				return err
			}
			if form == "text" {
				printFidelity(what, rows)
			}
			all = append(all, rows...)
		}
		return cli.EmitAs(cli.Out, form, all, func(io.Writer) {}) // text has been shown, set by set
	}
	return c
}

func printFidelity(what string, rows []fidelity.Row) {
	fmt.Fprintln(cli.Out, what)
	t := cli.TextTable("plan", "step, real", "simulated", "error", "peak, real", "simulated", "error")
	for _, x := range rows {
		t.AppendRow(table.Row{x.Plan, unit.Seconds(x.Step), unit.Seconds(x.StepSim),
			fmt.Sprintf("%+.1f%%", 100*(x.StepSim/x.Step-1)), tensor.Bytes(int64(x.Peak)),
			tensor.Bytes(int64(x.PeakSim)), fmt.Sprintf("%+.1f%%", 100*(x.PeakSim/x.Peak-1))})
	}
	t.Render()
}
