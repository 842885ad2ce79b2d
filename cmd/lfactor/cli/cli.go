// Package cli is what all verbs of the command line share: exit codes, forms of output, numbers as people
// read them, and the signals that end a command.
package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/topology/machine"
)

// ExitCode maps an error to the exit code that scripts rely on.
func ExitCode(err error) int {
	var coded links.ExitCoder
	var conf *configs.Error
	var damage *checkpoint.Error
	var budget *tensor.BudgetError
	var spent *dataset.BudgetError
	var rows *grad.RowsError
	var void *core.VoidError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, run.ErrStopped):
		return stopCode()
	case errors.As(err, &coded):
		return coded.ExitCode()
	case missing(err), errors.As(err, &conf):
		return exit.Usage
	case errors.As(err, &damage), errors.Is(err, checkpoint.ErrNone):
		return exit.Corrupt
	case errors.As(err, &spent), errors.Is(err, dataset.ErrNoTokens):
		return exit.Data
	case errors.Is(err, syscall.EADDRINUSE):
		return exit.Usage
	case errors.As(err, &budget), errors.As(err, &rows), errors.As(err, &void) && void.Over:
		return exit.Fit
	}
	return exit.Failed
}

// interrupted is the signal that asked for the end, 0 for none.
var interrupted atomic.Int32

// heard is a context that knows whether anybody listens to it.
type heard struct {
	context.Context
	by atomic.Bool
}

// Done implements context.Context.
func (h *heard) Done() <-chan struct{} {
	h.by.Store(true)
	return h.Context.Done()
}

// Err implements context.Context.
func (h *heard) Err() error {
	h.by.Store(true)
	return h.Context.Err()
}

// Interruptible is a context that ends with the first SIGINT or SIGTERM; the second kills the process as usual.
// Where nobody has asked for the context's end the first ends the process: its command has nothing to bring to an end.
func Interruptible() (context.Context, func()) {
	inner, cancel := context.WithCancel(context.Background())
	ctx := &heard{Context: inner}
	sigs := make(chan os.Signal, 1)
	// a terminal that is closed, a reader that is gone
	signal.Notify(sigs, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	// Nobody reads this one: with it there is no moment at which SIGPIPE is neither wanted nor ignored, and kills a process
	// whose write has just failed. What is said while a run saves its state goes nowhere.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if machine.HoldsTerm() {
		signal.Ignore(syscall.SIGTERM)
		signal.Notify(sigs, machine.EndSignal())
	}
	go func() {
		s := <-sigs
		for s == syscall.SIGPIPE && !machine.Broken(os.Stdout) && !machine.Broken(os.Stderr) {
			s = <-sigs // a socket of a process of the run that has ended: whoever wrote to it knows
		}
		if s == machine.EndSignal() {
			s = syscall.SIGTERM
		}
		interrupted.Store(int32(s.(syscall.Signal)))
		signal.Stop(sigs)
		cancel()
		if s != syscall.SIGPIPE && !ctx.by.Load() { // who writes to a reader that is gone sees it
			os.Exit(exit.Interrupted)
		}
	}()
	return ctx, func() { signal.Stop(sigs); cancel() }
}

// stopCode is the exit code of a run that ended on request after a durable save: 0 for SIGTERM, 130 for SIGINT.
func stopCode() int {
	if interrupted.Load() == int32(syscall.SIGINT) {
		return exit.Interrupted
	}
	return 0
}

// Output is the -o flag; an unknown form is an error.
func Output(c *cobra.Command) (string, error) {
	o, _ := c.Flags().GetString("output") // every command has the flag
	return o, checkForm(o)
}

// Form is the value of -o among a command's own flags; an unknown form is an error.
func Form(mine []string) (string, error) {
	form, _, err := TakeForm(mine)
	return form, err
}

// TakeForm takes -o out of the arguments of a command that reads its flags itself.
func TakeForm(args []string) (form string, rest []string, err error) {
	form = "text"
	for i := 0; i < len(args); i++ {
		name, value, inline := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !strings.HasPrefix(args[i], "-") || name != "o" && name != "output" {
			rest = append(rest, args[i])
			continue
		}
		if !inline {
			if i++; i == len(args) {
				return "", nil, exit.Usagef("-o wants text, json or jsonl")
			}
			value = args[i]
		}
		form = value
	}
	return form, rest, checkForm(form)
}

func checkForm(form string) error {
	switch form {
	case "text", "json", "jsonl":
		return nil
	}
	return exit.Usagef("-o %s: want text, json or jsonl", form)
}

// FlagValue is the value of --name among a command's own flags, "" if it was not given.
func FlagValue(mine []string, name string) string {
	for i, m := range mine {
		n, value, inline := strings.Cut(strings.TrimLeft(m, "-"), "=")
		if n == name && inline {
			return value
		}
		if n == name && i+1 < len(mine) {
			return mine[i+1]
		}
	}
	return ""
}

// RunDir is the run directory that a command's only argument names, by default that of the newest run.
func RunDir(args []string) string {
	if len(args) == 1 {
		return args[0]
	}
	return "runs/latest"
}
