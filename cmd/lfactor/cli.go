package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/spf13/cobra"
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

func usage(format string, a ...any) error { return coded(fmt.Errorf(format, a...), exitUsage) }

// coded gives an error its exit code.
func coded(err error, code int) error { return codedError{err, code} }

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

// form is the value of -o among a command's own flags.
func form(mine []string) string {
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

// flagValue is the value of --name among a command's own flags, "" if it was not given.
func flagValue(mine []string, name string) string {
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

// trainOwn are train's flags that are no settings.
var trainOwn = map[string]bool{"help": false, "h": false, "o": true, "output": true, "quiet": false, "q": false, "plan": true, "profile": false}
