// Package replay is the verb of that name: it parses, calls and prints.
package replay

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
)

// Command is lfactor replay: a step's answers once more.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "replay FILE.yaml STEP",
		Short: "Draw and judge a step's answers once more, and compare " +
			"them with the log",
		Long: "For runs that draw the answers that they learn from (grpo and its kin). The weights " +
			"behind the step " +
			"before are the ones that the run began with, or in a checkpoint that is still there. Exit " +
			"code 1 says that " +
			"something differs.",
		Args: cobra.ExactArgs(2)}
	only := c.Flags().Int64("sample", -1, "show the answers to this prompt alone, by its place in the "+
		"global order")
	c.RunE = func(c *cobra.Command, args []string) error {
		step, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil || step < 1 {
			return exit.Usagef("replay: %s is no step of a run, which count from 1", args[1])
		}
		cfg, err := configs.Load(configs.Request{File: args[0], Getenv: os.Getenv})
		if err != nil {
			return err
		}
		x, err := run.Replay(cfg, step)
		if err != nil {
			return err
		}
		if *only >= 0 {
			kept := []run.Difference{}
			for _, d := range x.Differ {
				if d.Sample == *only {
					kept = append(kept, d)
				}
			}
			x.Differ = kept
		}
		err = cli.Emit(c, x, func(w io.Writer) {
			fmt.Fprintf(w, "step %d: %d answers drawn and judged again with %s\n", x.Step, x.Answers, x.From)
			for _, d := range x.Differ {
				fmt.Fprintf(w, "sample %d answer %d: %s %s, now %s\n", d.Sample, d.Index, d.What, d.Was,
					d.Is)
			}
			if len(x.Differ) == 0 {
				fmt.Fprintln(w, "all are as they were logged: tokens, log-probabilities, rewards and "+
					"advantages")
			}
		})
		if err == nil && len(x.Differ) > 0 {
			err = exit.With(fmt.Errorf("%d answers differ", len(x.Differ)), exit.Failed)
		}
		return err
	}
	return c
}
