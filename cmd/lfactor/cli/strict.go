package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/kernels/cpu"
)

// Strict makes every wrong command line below c exit.Usage: an unknown command at any depth, a wrong number
// of arguments, a required flag that is missing, an unknown form of output. cobra leaves the first of them
// at depth two and more without any error.
func Strict(c *cobra.Command) {
	if c.HasSubCommands() && c.RunE == nil {
		c.Args = known
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	} else if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				if strings.HasPrefix(err.Error(), "unknown command") { // cobra.NoArgs of what is none
					err = fmt.Errorf("it takes no arguments, and got %q", args)
				}
				return exit.Usagef("%s: %w", c.CommandPath(), err)
			}
			return nil
		}
	}
	if run := c.RunE; run != nil && !c.DisableFlagParsing {
		c.RunE = func(c *cobra.Command, args []string) error {
			if _, err := Output(c); err != nil { // before anything is done
				return err
			}
			return run(c, args)
		}
	}
	if c.RunE != nil {
		c.RunE = busy(c.RunE)
	}
	for _, sub := range c.Commands() {
		Strict(sub)
	}
}

// Execute carries out the command line of c, below which Strict has been. Help about a command that does not
// exist is a wrong command line too: cobra looks at --help before it looks at names, and takes the name of an
// unknown command for the topic of the root's help.
func Execute(ctx context.Context, c *cobra.Command) error {
	var wrong error
	help := c.HelpFunc()
	c.SetHelpFunc(func(c *cobra.Command, args []string) {
		if c.HasSubCommands() {
			if wrong = known(c, c.Flags().Args()); wrong != nil {
				return
			}
		}
		help(c, args)
	})
	c.InitDefaultHelpCmd()
	for _, sub := range c.Commands() {
		if sub.Name() == "help" {
			sub.Run, sub.RunE = nil, about
		}
	}
	if c.OutOrStdout() == io.Writer(os.Stdout) {
		c.SetOut(Out)
	}
	if cpu.Level() == "" {
		return exit.Usagef("LFACTOR_CPU=%s: this machine has %s", os.Getenv("LFACTOR_CPU"), strings.Join(cpu.Levels(), ", "))
	}
	if err := c.ExecuteContext(ctx); err != nil && !unread(err) {
		if strings.HasPrefix(err.Error(), "if any flags in the group") { // cobra has no type for it
			return exit.With(err, exit.Usage)
		}
		return err
	}
	return errors.Join(wrong, written())
}

// about is the verb help: help about the command that its arguments name.
func about(help *cobra.Command, names []string) error {
	c, rest, err := help.Root().Find(names)
	if err != nil {
		return exit.With(err, exit.Usage)
	}
	if c.HasSubCommands() {
		if err := known(c, rest); err != nil {
			return err
		}
	}
	c.InitDefaultHelpFlag() // so that the list of flags has it
	return c.Help()
}

// known refuses the name of a command that does not exist.
func known(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	try := source.DidYouMean(args[0], names)
	if try == "" {
		try = "want " + strings.Join(names, ", ")
	}
	return exit.Usagef("%s: unknown command %q; %s", c.CommandPath(), args[0], try)
}

// missing says whether an error is cobra's for a required flag.
func missing(err error) bool { return strings.HasPrefix(err.Error(), "required flag(s) ") }
