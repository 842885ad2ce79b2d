// Package calibrate is the verb of that name: it parses, calls and prints.
package calibrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/calibrate"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/fit"
)

// Command is lfactor calibrate: this machine described for the simulator.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "calibrate [FILE.yaml]",
		Short: "Measure this machine or a device and write its description for lfactor sim and plan " +
			"--cluster",
		Long: "Trains small models of several widths for a few steps and fits rate of arithmetic, " +
			"memory bandwidth and cost of a call to the times of\ntheir segments. Without FILE the " +
			"description goes to stdout. Of a device that is not the processor it also measures memory and " +
			"copies; links between hosts are given values to be edited.", Args: cobra.MaximumNArgs(1)}
	threads := c.Flags().Int("threads", max(1, runtime.GOMAXPROCS(0)/2), "threads of one rank")
	device := c.Flags().String("device", kernels.CPU, "what is measured, as the key device says")
	dtype := c.Flags().String("dtype", "", "what is computed in, as train.precision says; fp32 on a processor and "+
		"bf16 elsewhere if not said")
	precision := c.Flags().String("precision", "", "measure products in this train.low_precision beside bf16 "+
		"instead, for the model of --run, and write the table that train.adaptive.policy reads")
	of := c.Flags().String("run", "", "run file whose model --precision measures")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *threads < 1 {
			return exit.Usagef("--threads %d: want at least 1", *threads)
		}
		if *precision != "" || *of != "" {
			if *dtype != "" {
				return exit.Usagef("--dtype %s: tables of --precision are of products in few bits beside bf16", *dtype)
			}
			return products(c, *precision, *of, *device, *threads, args)
		}
		if *dtype == "" {
			if *dtype = "bf16"; *device == kernels.CPU {
				*dtype = "fp32"
			}
		}
		t, ok := fit.Precisions[*dtype]
		if !ok {
			return exit.Usagef("--dtype %s: want fp32, bf16 or fp16", *dtype)
		}
		m, fit, err := calibrate.Calibrate(*device, *threads, t)
		var cannot *host.OpenError
		if errors.As(err, &cannot) {
			return exit.Usagef("--device %s: %v", *device, err)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%d segments in %d rounds, mean relative error %.1f%%; rates are those of %s, "+
			"and --dtype measures others\n", fit.Segments, fit.Rounds, 100*fit.Error, *dtype)
		if text := fit.Warning(); text != "" {
			fmt.Fprintln(os.Stderr, "warning: "+text)
		}
		if len(args) > 0 {
			if err := os.WriteFile(args[0], m.Write(), 0o644); err != nil {
				return err
			}
		}
		return cli.Emit(c, m, func(w io.Writer) {
			if len(args) == 0 {
				_, err = w.Write(m.Write())
			}
		})
	}
	return c
}

// products writes a table of products in a precision.
func products(c *cobra.Command, precision, run, device string, threads int, args []string) error {
	switch {
	case precision == "" || run == "":
		return exit.Usagef("--precision and --run go together: products are of a model, in a precision")
	case device != kernels.CPU:
		return exit.Usagef("--device %s: products of few bits run on the processor", device)
	}
	cfg, err := configs.Load(configs.Request{File: run, Getenv: os.Getenv})
	if err != nil {
		return err
	}
	m, err := fit.Build(cfg)
	if err != nil {
		return exit.With(err, exit.Usage)
	}
	if p, err := kernels.PrecisionOf(precision); err != nil || p == 0 {
		return exit.Usagef("--precision %s: want a train.low_precision other than none", precision)
	}
	table, err := calibrate.Products(cfg, m, precision, threads, func(text string) {
		fmt.Fprintln(os.Stderr, text)
	})
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(table, "", "  ")
	if err != nil {
		return err
	}
	if len(args) > 0 {
		if err := os.WriteFile(args[0], append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return cli.Emit(c, table, func(w io.Writer) {
		if len(args) == 0 {
			_, err = w.Write(append(text, '\n'))
		}
	})
}
