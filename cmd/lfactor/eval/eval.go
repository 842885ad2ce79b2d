// Package eval is the verb of that name: it parses, calls and prints.
package eval

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
)

// Command is lfactor eval: the loss of a checkpoint.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "eval FILE.yaml [key=value ...]",
		Short: "Loss of a run's newest checkpoint, or of the weights it starts from, on " +
			"its validation data",
		DisableFlagParsing: true, ValidArgsFunction: cli.CompleteKeys, RunE: evalCommand}
	c.Flags().Bool("ema", false, "of the average of the weights that optimizer.ema keeps")
	return c
}

func evalCommand(c *cobra.Command, args []string) error {
	flags := maps.Clone(cli.RunFlags)
	flags["ema"] = false
	file, mine, rest := configs.SplitArgs(args, flags)
	if slices.Contains(mine, "--help") || slices.Contains(mine, "-h") {
		return c.Help()
	}
	form, err := cli.Form(mine)
	if err != nil {
		return err
	}
	cfg, err := configs.Load(configs.Request{File: file, Args: append(rest, "plan.procs=1"),
		Getenv: os.Getenv})
	if err != nil {
		return err
	}
	cli.Notes(cfg.Notices)
	e, err := run.Evaluate(c.Context(), cfg, slices.Contains(mine, "--ema"))
	if err != nil {
		return err
	}
	return cli.EmitAs(cli.Out, form, e, func(w io.Writer) {
		perplexity := ""
		if e.Perplexity > 0 {
			perplexity = fmt.Sprintf("  perplexity %.3f", e.Perplexity)
		}
		fmt.Fprintf(w, "loss %.6f%s  (%s, %d batches)\n", e.Loss, perplexity, e.From, e.Batches)
	})
}
