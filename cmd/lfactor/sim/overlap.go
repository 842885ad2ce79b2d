package sim

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/sim/fidelity"
)

func overlapCommand() *cobra.Command {
	c := &cobra.Command{Use: "overlap",
		Short: "Measure what plan.overlap_microbatches gains on paced devices, beside what is simulated",
		Args:  cobra.NoArgs,
		Long: "A small mixture of experts runs for real on 8 ranks whose jobs and messages last their " +
			"modelled time, without and with the key, and in the simulator. Hidden is\nthe share of the " +
			"wait for exchanges inside passes that the key takes away. With --of context, ranks\nof a ring share the tokens " +
			"of a sequence: first each has one run of them, and then two, one from each end, as\nplan.cp_layout says."}
	of := c.Flags().String("of", "microbatches", "what is compared: microbatches or context")
	bandwidth := c.Flags().Float64("bandwidth", 128e3, "bytes a second of each link")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !(*bandwidth > 0) {
			return exit.Usagef("--bandwidth %v: want more than 0", *bandwidth)
		}
		compare, print := fidelity.OverlapPaced, printOverlap
		switch *of {
		case "microbatches":
		case "context":
			compare = func(b float64) ([]fidelity.Overlapped, error) { return fidelity.ContextPaced(b, true) }
			print = printContext
		default:
			return exit.Usagef("--of %s: want microbatches or context", *of)
		}
		rows, err := compare(*bandwidth)
		if err != nil {
			return err
		}
		return cli.Emit(c, rows, func(io.Writer) { print(rows) })
	}
	return c
}

// printContext leaves out what a key would hide: both plans send the same.
func printContext(rows []fidelity.Overlapped) {
	t := cli.TextTable("plan", "contiguous, real", "zigzag", "gain, real", "predicted")
	for _, r := range rows {
		t.AppendRow(table.Row{r.Plan, unit.Seconds(r.Real[0].Step), unit.Seconds(r.Real[1].Step),
			percent(fidelity.Gain(r.Real)), percent(fidelity.Gain(r.Sim))})
	}
	t.Render()
}

func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

func printOverlap(rows []fidelity.Overlapped) {
	t := cli.TextTable("plan", "step, real", "overlapped", "gain, real", "predicted", "hidden, real", "predicted")
	for _, r := range rows {
		t.AppendRow(table.Row{r.Plan, unit.Seconds(r.Real[0].Step), unit.Seconds(r.Real[1].Step),
			percent(fidelity.Gain(r.Real)), percent(fidelity.Gain(r.Sim)),
			percent(fidelity.Hidden(r.Real)), percent(fidelity.Hidden(r.Sim))})
	}
	t.Render()
}
