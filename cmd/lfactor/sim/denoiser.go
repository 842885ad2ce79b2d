package sim

import (
	"fmt"
	"io"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/sim/fidelity"
)

func denoiserCommand() *cobra.Command {
	c := &cobra.Command{Use: "denoiser FILE.yaml [key=value ...]",
		Short: "Compare layouts of the frozen encoders of a model of diffusion: cached, live, on devices of their own",
		Long: "Steps of the run file's denoiser are simulated on so many devices, with as many replicas as they hold; what " +
			"a sample's latents and caption\ntake to encode is priced by the same machine, from the config.json of " +
			"diffusion.autoencoder and diffusion.text_encoder. No weights are read.",
		Args: cobra.MinimumNArgs(1)}
	cluster := c.Flags().String("cluster", "h100", "machine")
	devices := c.Flags().IntSlice("devices", []int{64, 128}, "numbers of devices")
	svg := c.Flags().String("svg", "", "file for the shares of all devices' time as a drawing")
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := configs.Load(configs.Request{File: args[0], Args: args[1:], Getenv: os.Getenv})
		if err != nil {
			return err
		}
		cli.Notes(cfg.Notices)
		for _, n := range *devices {
			if n < 1 {
				return exit.Usagef("--devices %d: want at least 1", n)
			}
		}
		all, err := fidelity.DenoiserAtScale(cfg, *cluster, *devices)
		if err != nil {
			return err
		}
		if *svg != "" {
			if err := os.WriteFile(*svg, []byte(fidelity.DenoiserSVG(all)), 0o644); err != nil {
				return err
			}
		}
		return cli.Emit(c, all, func(io.Writer) { printDenoiser(all) })
	}
	return c
}

func printDenoiser(all []fidelity.DenoiserLayout) {
	fmt.Fprintf(cli.Out, "a sample takes one device %s for its latents and %s for the states of its caption\n",
		unit.Seconds(all[0].VAEEach), unit.Seconds(all[0].TextEach))
	t := cli.TextTable("devices", "encoders", "step", "samples/s", "gain over live", "VAE", "text",
		"denoiser", "waiting")
	live := map[int]float64{}
	for _, l := range all {
		if l.Layout == fidelity.Live {
			live[l.Devices] = l.Samples
		}
	}
	share := func(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }
	for _, l := range all {
		name := l.Layout
		if l.Encoding > 0 {
			name = fmt.Sprintf("%s: %d", l.Layout, l.Encoding)
		}
		t.AppendRow(table.Row{l.Devices, name, unit.Seconds(l.Step), fmt.Sprintf("%.3f", l.Samples),
			fmt.Sprintf("%+.1f%%", 100*(l.Samples/live[l.Devices]-1)), share(l.VAE), share(l.Text), share(l.Denoiser),
			share(l.Rest)})
	}
	t.Render()
}
