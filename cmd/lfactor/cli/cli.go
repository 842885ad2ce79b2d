// Package cli is what all verbs of the command line share: exit codes, forms of output, numbers as people read them, and the signals that end a command.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
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
	ExitFailed      = 1
	ExitUsage       = 2
	ExitFit         = 3
	ExitData        = 4
	ExitCorrupt     = 6
	ExitInterrupted = 130
)

// codedError is an error with its exit code; a silent one was printed already.
type codedError struct {
	error
	code int
}

func (e codedError) ExitCode() int { return e.code }

func (e codedError) Unwrap() error { return e.error }

// Usage is a fault of the command line or of a configuration.
func Usage(format string, a ...any) error { return Coded(fmt.Errorf(format, a...), ExitUsage) }

// Coded gives an error its exit code.
func Coded(err error, code int) error { return codedError{err, code} }

// ExitCode maps an error to the exit code that scripts rely on.
func ExitCode(err error) int {
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
		return ExitUsage
	case errors.As(err, &damage), errors.Is(err, checkpoint.ErrNone):
		return ExitCorrupt
	case errors.As(err, &spent), errors.Is(err, dataset.ErrNoTokens):
		return ExitData
	case errors.As(err, &budget):
		return ExitFit
	}
	return ExitFailed
}

// Interrupted is the signal that asked for the end, 0 for none.
var Interrupted atomic.Int32

// Interruptible is a context that ends with the first SIGINT or SIGTERM; the second kills the process as usual.
func Interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	sigs := make(chan os.Signal, 1)
	signal.Notify(sigs, os.Interrupt, syscall.SIGTERM)
	go func() {
		s, ok := <-sigs
		if !ok {
			return
		}
		Interrupted.Store(int32(s.(syscall.Signal)))
		signal.Stop(sigs)
		cancel()
	}()
	return ctx, func() { signal.Stop(sigs); cancel() }
}

// StopCode is the exit code of a run that ended on request after a durable save: 0 for SIGTERM, 130 for SIGINT.
func StopCode() int {
	if Interrupted.Load() == int32(syscall.SIGINT) {
		return ExitInterrupted
	}
	return 0
}

// Output is the -o flag; an unknown form is an error.
func Output(c *cobra.Command) (string, error) {
	o, _ := c.Flags().GetString("output")
	switch o {
	case "text", "json", "jsonl":
		return o, nil
	}
	return "", Usage("-o %s: want text, json or jsonl", o)
}

// Form is the value of -o among a command's own flags.
func Form(mine []string) string {
	for i, m := range mine {
		name, value, inline := strings.Cut(strings.TrimLeft(m, "-"), "=")
		if name != "o" && name != "output" {
			continue
		}
		if !inline && i+1 < len(mine) {
			value = mine[i+1]
		}
		return value
	}
	return "text"
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

// RunFlags are train's flags that are no settings.
var RunFlags = map[string]bool{"help": false, "h": false, "o": true, "output": true, "quiet": false, "q": false, "plan": true, "profile": false}
