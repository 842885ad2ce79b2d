// Package audit is the verb of that name: it parses, calls and prints.
package audit

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
)

// Command is lfactor audit: steps of a run once more.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "audit [RUN]",
		Short: "Train steps of a run once more, and hold its records to their chain of hashes",
		Long: "RUN is a run directory (log.dir), by default runs/latest; it and its checkpoints are read alone. The chain " +
			"(chain.jsonl) is checked first,\nthen settings, metrics, ledger and checkpoints beside it, and the samples of " +
			"every step are read again. Steps are drawn, each is trained\nagain from the nearest checkpoint before it, with all " +
			"ranks in this process, and loss, norm of the gradient, learning rate and samples\nare compared to the bit. Exit code " +
			"1 says that something differs, 6 that something cannot be looked at.",
		Args: cobra.MaximumNArgs(1)}
	var o run.AuditOptions
	c.Flags().IntVar(&o.Steps, "steps", 20, "how many steps to draw")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "of the draw")
	c.Flags().Int64Var(&o.Within, "within", 0, "draw no step farther behind a checkpoint than this; 0 means any, also from "+
		"the beginning of the run")
	c.RunE = func(c *cobra.Command, args []string) error {
		if o.Steps < 1 || o.Within < 0 {
			return exit.Usagef("audit: want --steps of at least 1, and --within of at least 0")
		}
		o.Progress = c.ErrOrStderr()
		a, err := run.Audit(c.Context(), cli.RunDir(args), o)
		if err != nil {
			return err
		}
		if err := cli.Emit(c, a, func(w io.Writer) { show(w, a) }); err != nil {
			return err
		}
		switch {
		case len(a.Differ) > 0:
			return exit.With(errors.New(""), exit.Failed) // the differences were printed
		case len(a.Damaged) > 0:
			return exit.With(errors.New(""), exit.Corrupt)
		}
		return nil
	}
	return c
}

func show(w io.Writer, a *run.Audited) {
	fmt.Fprintf(w, "%s: %d steps, root of the chain %s\n", a.Run, a.Steps, a.Root)
	fmt.Fprintf(w, "samples of %d steps were read again, %d steps were trained again for the %d that were drawn of %d: %v\n",
		a.Read, a.Again, len(a.Drawn), a.Can, a.Drawn)
	for _, n := range a.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	for _, d := range a.Differ {
		at, more := "", ""
		if d.Step > 0 {
			at = fmt.Sprintf("step %d: ", d.Step)
		}
		if d.More > 0 {
			more = fmt.Sprintf(" (and %d more)", d.More)
		}
		fmt.Fprintf(w, "differs: %s%s: %s, now %s%s\n", at, d.What, d.Was, d.Is, more)
	}
	for _, d := range a.Damaged {
		fmt.Fprintln(w, "damaged:", d)
	}
	if len(a.Differ)+len(a.Damaged) == 0 {
		fmt.Fprintln(w, "all is as the chain says: loss, norm of the gradient, learning rate and samples to the bit")
	}
}
