// Command lfactor trains models as graphs of actors, plans and simulates such runs, and looks after their checkpoints
// and data. Each verb has a folder, which parses, calls and prints; main only puts them together.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/audit"
	"github.com/lfactor/lfactor/cmd/lfactor/bench"
	"github.com/lfactor/lfactor/cmd/lfactor/calibrate"
	"github.com/lfactor/lfactor/cmd/lfactor/ckpt"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/cmd/lfactor/cluster"
	"github.com/lfactor/lfactor/cmd/lfactor/compare"
	"github.com/lfactor/lfactor/cmd/lfactor/config"
	"github.com/lfactor/lfactor/cmd/lfactor/data"
	"github.com/lfactor/lfactor/cmd/lfactor/demo"
	"github.com/lfactor/lfactor/cmd/lfactor/doctor"
	"github.com/lfactor/lfactor/cmd/lfactor/edges"
	"github.com/lfactor/lfactor/cmd/lfactor/eval"
	"github.com/lfactor/lfactor/cmd/lfactor/hub"
	"github.com/lfactor/lfactor/cmd/lfactor/jobs"
	"github.com/lfactor/lfactor/cmd/lfactor/newrun"
	"github.com/lfactor/lfactor/cmd/lfactor/plan"
	"github.com/lfactor/lfactor/cmd/lfactor/reference"
	"github.com/lfactor/lfactor/cmd/lfactor/replay"
	"github.com/lfactor/lfactor/cmd/lfactor/runs"
	"github.com/lfactor/lfactor/cmd/lfactor/sample"
	"github.com/lfactor/lfactor/cmd/lfactor/serve"
	simverb "github.com/lfactor/lfactor/cmd/lfactor/sim"
	"github.com/lfactor/lfactor/cmd/lfactor/tables"
	"github.com/lfactor/lfactor/cmd/lfactor/train"
	"github.com/lfactor/lfactor/cmd/lfactor/ui"
	"github.com/lfactor/lfactor/cmd/lfactor/version"
	"github.com/lfactor/lfactor/cmd/lfactor/why"
	"github.com/lfactor/lfactor/configs/exit"
)

func root() *cobra.Command {
	c := &cobra.Command{Use: "lfactor", Short: "Train models as graphs of actors", SilenceErrors: true,
		SilenceUsage: true, Long: "lfactor trains language models as graphs of actors: every pipeline stage, " +
			"tensor- and data-parallel rank and loader\nis an actor with a memory budget. `lfactor demo` shows it on " +
			"this machine.\n\nExit codes:\n" + codes()}
	c.PersistentFlags().StringP("output", "o", "text", "form of the data on stdout: text, json or jsonl")
	c.AddCommand(audit.Command(), bench.Command(), calibrate.Command(), ckpt.Command(), cluster.Command(), compare.Command(),
		config.Command(), data.Command(), demo.Command(), doctor.Command(), edges.Command(), eval.Command(),
		hub.Command(), newrun.Command(), plan.Command(), reference.Command(), replay.Command(), runs.Command(), sample.Command(),
		serve.Command(), simverb.Command(), tables.Command(), train.Command(), train.Stages(), ui.Command(),
		version.Command(), why.Command())
	c.AddCommand(jobs.Commands()...)
	for _, name := range []string{"attach", "cluster", "demo", "events", "logs", "sample", "serve", "stages", "train", "ui"} {
		if own, _, err := c.Find([]string{name}); err == nil { // it is there
			cli.OwnProgress(own)
		}
	}
	c.SetUsageTemplate(cli.UsageTemplate(c))
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.With(err, exit.Usage) })
	cli.Strict(c)
	return c
}

// codes is the table of exit codes.
func codes() (text string) {
	for _, c := range exit.Codes() {
		text += fmt.Sprintf("  %-4d %s\n", c.Code, c.Doc)
	}
	return strings.TrimSuffix(text, "\n")
}

func main() {
	ownRoots()
	ctx, stop := cli.Interruptible()
	defer stop()
	c := root()
	err := cli.Execute(ctx, c)
	if err == nil {
		return
	}
	code := cli.ExitCode(err)
	if code != exit.Interrupted && err.Error() != "" && !errors.Is(err, run.ErrStopped) {
		form, _ := c.PersistentFlags().GetString("output") // the flag is there
		cli.Say(os.Stderr, err, cli.FormOf(form, os.Args[1:]))
	}
	stop()
	os.Exit(code) // after a request to stop and a durable save the code may be 0
}
