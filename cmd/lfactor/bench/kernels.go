package bench

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/bench/rates"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/fit"
)

func kernelBench() *cobra.Command {
	c := &cobra.Command{Use: "kernels", Short: "Time kernels beside the machine's measured peaks; bench/kernels.py " +
		"times PyTorch's beside them", Args: cobra.NoArgs}
	threads := c.Flags().IntSlice("threads", []int{1}, "kernel threads, several by commas")
	types := c.Flags().StringSlice("precision", []string{"fp32", "bf16"}, "fp32, bf16, or both by commas")
	rounds := c.Flags().Int("rounds", 7, "rounds; the median counts")
	only := c.Flags().String("only", "", "measure only kernels whose name contains this")
	c.RunE = func(c *cobra.Command, _ []string) error {
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		see, end := cli.Tell(c.ErrOrStderr(), "measuring peaks")
		defer end()
		var out []rates.KernelTime
		for _, n := range *threads {
			if n < 1 || *rounds < 1 {
				return exit.Usagef("--threads and --rounds want numbers from 1")
			}
			b := kernels.OpenProber(n)
			p := b.Peaks()
			for _, t := range *types {
				d, ok := fit.Precisions[t]
				if !ok || d == tensor.F16 {
					kernels.Close(b)
					return exit.Usagef("--precision %s: want fp32 or bf16", t)
				}
				out = append(out, rates.Kernels(b, p, d, *only, n, *rounds, see)...)
			}
			kernels.Close(b)
		}
		return printKernels(out, form)
	}
	return c
}

func peakBench() *cobra.Command {
	c := &cobra.Command{Use: "peak", Short: "Measure what this machine's instructions can do at most",
		Args: cobra.NoArgs}
	c.RunE = func(c *cobra.Command, _ []string) error {
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		b := kernels.OpenProber(0)
		defer kernels.Close(b)
		p := b.Peaks()
		if form != "text" {
			return json.NewEncoder(cli.Out).Encode(map[string]any{"level": b.Name(),
				"multiply_add_flops": p.MultiplyAdd, "bf16_flops": p.Tiles, "memory_bytes_per_second": p.Memory})
		}
		t := cli.TextTable("what", "measured")
		t.AppendRow(table.Row{"instructions", b.Name()})
		t.AppendRow(table.Row{"float32 multiply-adds in registers, one thread",
			fmt.Sprintf("%.1f GFLOP/s", p.MultiplyAdd/1e9)})
		if p.Tiles > 0 {
			t.AppendRow(table.Row{"bfloat16 products in registers, one thread",
				fmt.Sprintf("%.1f GFLOP/s", p.Tiles/1e9)})
		}
		t.AppendRow(table.Row{"memory, all threads", fmt.Sprintf("%.1f GB/s", p.Memory/1e9)})
		t.Render()
		return nil
	}
	return c
}

func printKernels(out []rates.KernelTime, form string) error {
	return cli.EmitAs(cli.Out, form, out, func(io.Writer) { kernelTable(out) })
}

func kernelTable(out []rates.KernelTime) {
	t := cli.TextTable("kernel", "dtype", "threads", "time", "GFLOP/s", "GB/s", "of peak")
	for _, k := range out {
		rate := ""
		if k.Flops > 0 {
			rate = fmt.Sprintf("%.1f", k.Flops/k.Seconds/1e9)
		}
		t.AppendRow(table.Row{k.Name, k.DType, k.Threads, unit.Seconds(k.Seconds), rate,
			fmt.Sprintf("%.1f", k.Bytes/k.Seconds/1e9), fmt.Sprintf("%.0f%%", 100*k.Peak)})
	}
	t.Render()
}
