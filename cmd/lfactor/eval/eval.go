// Package eval is the verb of that name: it parses, calls and prints.
package eval

import (
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/cmd/lfactor/training"
	"github.com/lfactor/lfactor/configs"
)

// Command is lfactor eval: the loss of a checkpoint.
func Command() *cobra.Command {
	return &cobra.Command{Use: "eval FILE.yaml [key=value ...]", Short: "Loss of a run's newest checkpoint, or of the weights it starts from, on its validation data",
		DisableFlagParsing: true, RunE: evalCommand}
}

func evalCommand(c *cobra.Command, args []string) error {
	file, mine, rest := configs.SplitArgs(args, cli.RunFlags)
	if slices.Contains(mine, "--help") || slices.Contains(mine, "-h") {
		return c.Help()
	}
	cfg, err := configs.Load(configs.Request{File: file, Args: append(rest, "plan.procs=1"), Getenv: os.Getenv})
	if err != nil {
		return err
	}
	r := &training.Run{Cfg: cfg}
	if err := r.Prepare(); err != nil {
		return err
	}
	defer r.Start.Close()
	defer r.Data.Close()
	if !r.Data.Validates() {
		return cfg.Fault("data.valid", "there is no validation data", "name files, or give data.split a second share")
	}
	o, closeAll, err := r.Options(0)
	if err != nil {
		return err
	}
	defer closeAll()
	o.Save, o.Begin, o.Commit = nil, nil, nil
	o.Coord.EvalOnly, o.Coord.EvalEvery, o.Coord.SaveAtEnd = true, 0, false
	o.Stop = c.Context().Done()
	loss := math.NaN()
	o.Observe = func(m actors.Message) {
		if m.Text == core.TopicEval {
			loss = m.Values[0]
		}
	}
	if err := host.Run(r.Layout, o); err != nil {
		return err
	}
	if cli.Form(mine) != "text" {
		return cli.PrintJSON(map[string]any{"loss": loss, "perplexity": math.Exp(loss), "from": r.Start.From, "batches": cfg.Run.Train.EvalSteps})
	}
	fmt.Printf("loss %.6f  perplexity %.3f  (%s, %d batches)\n", loss, math.Exp(loss), r.Start.From, cfg.Run.Train.EvalSteps)
	return nil
}
