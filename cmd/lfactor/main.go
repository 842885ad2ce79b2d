// Command lfactor trains models as graphs of actors, plans and simulates such runs, and looks after their checkpoints and
// data. Each subcommand has a file of its own; they wire the packages together and decide nothing.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func root() *cobra.Command {
	c := &cobra.Command{Use: "lfactor", Short: "Train models as graphs of actors", SilenceErrors: true, SilenceUsage: true,
		Long: "lfactor trains language models as graphs of actors: every pipeline stage, tensor- and data-parallel rank and loader\nis an actor with a memory budget. `lfactor demo` shows it on this machine."}
	c.PersistentFlags().StringP("output", "o", "text", "form of the data on stdout: text, json or jsonl")
	c.AddCommand(benchVerb(), calibrateVerb(), ckptVerb(), configVerb(), dataVerb(), demoVerb(), doctorVerb(), evalVerb(), initVerb(),
		planVerb(), sampleVerb(), simVerb(), trainVerb(), versionVerb(), whyVerb())
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return coded(err, exitUsage) })
	return c
}

func main() {
	ctx, stop := interruptible()
	defer stop()
	c := root()
	err := c.ExecuteContext(ctx)
	if err == nil {
		return
	}
	code := exitCode(err)
	if code != exitInterrupted && err.Error() != "" {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	stop()
	os.Exit(code) // after a request to stop and a durable save the code may be 0
}
