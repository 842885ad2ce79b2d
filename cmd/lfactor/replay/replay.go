// Package replay is the verb of that name: it parses, calls and prints.
package replay

import (
	"errors"
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
	only := c.Flags().Int64("sample", -1, "draw and judge the answers to this prompt alone, by its place in the "+
		"global order, and train nothing")
	c.RunE = func(c *cobra.Command, args []string) error {
		step, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil || step < 1 {
			return exit.Usagef("replay: %s is no step of a run, which count from 1", args[1])
		}
		cfg, err := configs.Load(configs.Request{File: args[0], Getenv: os.Getenv})
		if err != nil {
			return err
		}
		x, err := run.Replay(cfg, step, *only)
		if err != nil {
			return err
		}
		err = cli.Emit(c, x, func(w io.Writer) {
			fmt.Fprintf(w, "step %d: %d answers drawn and judged again with %s\n", x.Step, x.Answers, x.From)
			for _, d := range x.Differ {
				fmt.Fprintf(w, "sample %d answer %d: %s %s, now %s\n", d.Sample, d.Index, d.What, d.Was, d.Is)
			}
			if len(x.Differ) == 0 {
				fmt.Fprintln(w, "all are as they were logged: tokens, log-probabilities, rewards and advantages")
			}
			redone(w, x)
		})
		if y := x.Redone; err == nil && y != nil && y.Missing == "" && (!y.Same || y.Weights != "" &&
			y.Weights != "same") {
			err = exit.With(errors.New("the step's training differs"), exit.Failed)
		}
		if err == nil && len(x.Differ) > 0 {
			err = exit.With(fmt.Errorf("%d answers differ", len(x.Differ)), exit.Failed)
		}
		return err
	}
	return c
}

// redone says how the step's training went again.
func redone(w io.Writer, x *run.Replayed) {
	y := x.Redone
	switch {
	case y == nil:
		return
	case y.Missing != "":
		fmt.Fprintf(w, "the step is not trained again: %s\n", y.Missing)
		return
	case y.Same:
		fmt.Fprintf(w, "trained again in one process: loss %v and norm of the gradient %v, to the bit\n",
			y.Loss, y.GradNorm)
	default:
		fmt.Fprintf(w,
			"trained again in one process: loss %v and norm of the gradient %v differ from what was logged\n",
			y.Loss, y.GradNorm)
	}
	switch y.Weights {
	case "":
	case "same":
		fmt.Fprintln(w, "the weights behind it are those of the run's checkpoint, to the bit")
	default:
		fmt.Fprintf(w, "the weights behind it are not those of the run's checkpoint: %s\n", y.Weights)
	}
}
