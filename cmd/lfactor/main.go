// Command lfactor trains models as graphs of actors, plans and simulates such runs, and looks after their checkpoints and
// data. Each subcommand has a file of its own; they wire the packages together and decide nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitFit         = 3
	exitData        = 4
	exitCorrupt     = 6
	exitInterrupted = 130
)

// codedError is an error with its exit code; a silent one was printed already.
type codedError struct {
	error
	code int
}

func (e codedError) ExitCode() int { return e.code }
func (e codedError) Unwrap() error { return e.error }

func usage(format string, a ...any) error { return codedError{fmt.Errorf(format, a...), exitUsage} }

// exitCode maps an error to the exit code that scripts rely on.
func exitCode(err error) int {
	var coded host.ExitCoder
	var conf *configs.Error
	var damage *checkpoint.Error
	var budget *tensor.BudgetError
	var spent *dataset.BudgetError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.ExitCode()
	case errors.As(err, &conf):
		return exitUsage
	case errors.As(err, &damage), errors.Is(err, checkpoint.ErrNone):
		return exitCorrupt
	case errors.As(err, &spent), errors.Is(err, dataset.ErrNoTokens):
		return exitData
	case errors.As(err, &budget):
		return exitFit
	}
	return exitFailed
}

// commands are the subcommands' constructors; each file adds its own.
var commands []func() *cobra.Command

func add(f func() *cobra.Command) bool { commands = append(commands, f); return true }

func root() *cobra.Command {
	c := &cobra.Command{Use: "lfactor", Short: "Train models as graphs of actors", SilenceErrors: true, SilenceUsage: true,
		Long: "lfactor trains language models as graphs of actors: every pipeline stage, tensor- and data-parallel rank and loader\nis an actor with a memory budget. `lfactor demo` shows it on this machine."}
	c.PersistentFlags().StringP("output", "o", "text", "form of the data on stdout: text, json or jsonl")
	for _, f := range commands {
		c.AddCommand(f())
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return codedError{err, exitUsage} })
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

// interrupted is the signal that asked for the end, 0 for none.
var interrupted atomic.Int32

// interruptible is a context that ends with the first SIGINT or SIGTERM; the second kills the process as usual.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	sigs := make(chan os.Signal, 1)
	signal.Notify(sigs, os.Interrupt, syscall.SIGTERM)
	go func() {
		s, ok := <-sigs
		if !ok {
			return
		}
		interrupted.Store(int32(s.(syscall.Signal)))
		signal.Stop(sigs)
		cancel()
	}()
	return ctx, func() { signal.Stop(sigs); cancel() }
}

// stopCode is the exit code of a run that ended on request after a durable save: 0 for SIGTERM, 130 for SIGINT.
func stopCode() int {
	if interrupted.Load() == int32(syscall.SIGINT) {
		return exitInterrupted
	}
	return 0
}

// output is the -o flag; an unknown form is an error.
func output(c *cobra.Command) (string, error) {
	o, _ := c.Flags().GetString("output")
	switch o {
	case "text", "json", "jsonl":
		return o, nil
	}
	return "", usage("-o %s: want text, json or jsonl", o)
}
