package sim

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/sim/fidelity"
)

func encoderCommand() *cobra.Command {
	c := &cobra.Command{Use: "encoder",
		Short: "Compare layouts of a vision encoder and its decoder, simulated and on paced devices",
		Args:  cobra.NoArgs,
		Long: "Two tables. The first simulates a 32-device machine with a vision-language model of " +
			"published size on sequences of 32 Ki tokens, a quarter of them\nimages. The second runs " +
			"a small model for real on 8 ranks whose jobs last their modelled time, beside what the " +
			"simulator predicts for it."}
	cluster := c.Flags().String("cluster", "h800", "machine of the first table")
	model := c.Flags().String("model", "qwen-vl/3-4b", "model of the first table")
	real := c.Flags().Bool("paced", true, "run the second table")
	micro := c.Flags().Int("microbatches", 16, "microbatches a step and replica in the first table")
	dir := c.Flags().String("timelines", "",
		"folder for the timeline of each layout of the first table: SVG, and traces for Perfetto")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *micro < 1 {
			return exit.Usagef("--microbatches %d: want at least 1", *micro)
		}
		see, end := cli.Tell(c.ErrOrStderr(), "simulating layouts at scale")
		defer end()
		var res fidelity.EncoderResult
		var err error
		if res.Simulated, err = fidelity.EncoderAtScale(*cluster, *model, *dir, *micro, see); err != nil {
			return err
		}
		if *real {
			if res.Paced, err = fidelity.EncoderPaced(see); err != nil {
				return err
			}
		}
		return cli.Emit(c, res, func(io.Writer) { printEncoder(&res, *model, *cluster, *micro) })
	}
	return c
}

func printEncoder(r *fidelity.EncoderResult, model, cluster string, micro int) {
	gain := func(before, after float64) string { return fmt.Sprintf("%+.1f%%", 100*(before/after-1)) }
	fmt.Fprintf(cli.Out, "%s on 32 devices of %s: pp2 dp4 tp4, zero 1, full recompute, bf16, %d microbatches of "+
		"%d tokens with %[4]d patches (simulated)\n", model, cluster, micro, fidelity.EncoderRows)
	t := cli.TextTable("encoder", "step", "tokens/s a device", "gain over the first", "over the second",
		"bubble of the longest rank", "peak")
	for i, s := range r.Simulated {
		second := "" // what tensor parallelism alone gives
		if i > 0 {
			second = gain(r.Simulated[1].Step, s.Step)
		}
		t.AppendRow(table.Row{s.Layout, unit.Seconds(s.Step), fmt.Sprintf("%.0f", s.Rate),
			gain(r.Simulated[0].Step, s.Step), second, fmt.Sprintf("%.1f%%", 100*s.Bubble), tensor.Bytes(s.Peak)})
	}
	t.Render()
	if len(r.Paced) == 0 {
		return
	}
	fmt.Fprintf(cli.Out, "\na small model on 8 ranks (pp4 tp2), 8 microbatches: jobs last their modelled time, "+
		"for real and simulated\n")
	t = cli.TextTable("encoder", "step, real", "simulated", "gain, real", "predicted")
	for _, s := range r.Paced {
		t.AppendRow(table.Row{s.Layout, unit.Seconds(s.Step), unit.Seconds(s.Simulated),
			gain(r.Paced[0].Step, s.Step), gain(r.Paced[0].Simulated, s.Simulated)})
	}
	t.Render()
}
