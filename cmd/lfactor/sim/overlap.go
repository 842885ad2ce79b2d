package sim

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/actors/fidelity"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/unit"
)

func overlapCommand() *cobra.Command {
	c := &cobra.Command{Use: "overlap",
		Short: "Measure what plan.overlap_microbatches gains on paced devices, beside what is simulated",
		Args:  cobra.NoArgs,
		Long: "A small mixture of experts runs for real on 8 ranks whose jobs and messages last their " +
			"modelled time, without and with the key, and in the simulator. Hidden is\nthe share of the " +
			"wait for exchanges inside passes that the key takes away."}
	bandwidth := c.Flags().Float64("bandwidth", 128e3, "bytes a second of each link")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !(*bandwidth > 0) {
			return exit.Usagef("--bandwidth %v: want more than 0", *bandwidth)
		}
		rows, err := fidelity.OverlapPaced(*bandwidth)
		if err != nil {
			return err
		}
		return cli.Emit(c, rows, func(io.Writer) { printOverlap(rows) })
	}
	return c
}

func printOverlap(rows []fidelity.Overlapped) {
	percent := func(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }
	t := cli.TextTable("plan", "step, real", "overlapped", "gain, real", "predicted", "hidden, real",
		"predicted")
	for _, r := range rows {
		t.AppendRow(table.Row{r.Plan, unit.Seconds(r.Real[0].Step), unit.Seconds(r.Real[1].Step),
			percent(fidelity.Gain(r.Real)), percent(fidelity.Gain(r.Sim)),
			percent(fidelity.Hidden(r.Real)), percent(fidelity.Hidden(r.Sim))})
	}
	t.Render()
}
