// Package compare is the verb of that name: it parses, calls and prints.
package compare

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
)

// tensorsShown bounds the tensors that are listed for people.
const tensorsShown = 8

// Command is lfactor compare: where two runs part.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "compare RUN RUN",
		Short: "Say where two runs part: settings, samples, losses, and tensors of their checkpoints",
		Long: "RUN is a run directory (log.dir). Samples, losses and gradient norms are compared step by step to the bit; samples " +
			"are alike if they teach the same. Then come the checkpoints of steps that both runs have, the oldest first, and the tensors that both wrote " +
			"down (log.tensors): the first that differs is named. As with diff, the exit code is 1 if they differ.",
		Args: cobra.ExactArgs(2)}
	c.RunE = func(c *cobra.Command, args []string) error {
		for _, dir := range args {
			if _, err := os.Stat(filepath.Join(dir, "run.yaml")); err != nil {
				return exit.With(fmt.Errorf("%s: no run's records are here; name two run directories (log.dir)", dir), exit.Corrupt)
			}
		}
		d, err := record.Compare(args[0], args[1])
		if err != nil {
			return err
		}
		if err := cli.Emit(c, d, func(w io.Writer) { show(w, d) }); err != nil {
			return err
		}
		if !d.Equal() {
			return exit.With(errors.New(""), exit.Failed) // the differences were printed
		}
		return nil
	}
	return c
}

func show(w io.Writer, d *record.Comparison) {
	for _, k := range d.Keys {
		fmt.Fprintf(w, "%s: %s → %s\n", k.Key, orNone(k.A), orNone(k.B))
	}
	if d.Steps == 0 {
		fmt.Fprintln(w, "no step that both have")
		return
	}
	part := func(what string, step int64) {
		if step == 0 {
			fmt.Fprintf(w, "%-15s the same until step %d\n", what, d.Steps)
			return
		}
		fmt.Fprintf(w, "%-15s part at step %d\n", what, step)
	}
	part("samples", d.Samples)
	part("losses", d.Loss)
	part("gradient norms", d.Norm)
	if d.Loss > 0 {
		fmt.Fprintf(w, "  step %d: %.9g and %.9g\n", d.Loss, d.At[0], d.At[1])
		fmt.Fprintf(w, "  farthest at step %d: %.3g apart\n", d.Farthest, d.Apart)
	}
	fmt.Fprintf(w, "  step %d: %.9g and %.9g\n", d.Steps, d.Last[0], d.Last[1])
	showSeen(w, d)
	switch {
	case len(d.Saved) == 0:
		fmt.Fprintln(w, "tensors         no checkpoint of one step")
	case d.TensorsAt == 0:
		fmt.Fprintf(w, "tensors         the same at steps %v\n", d.Saved)
	default:
		fmt.Fprintf(w, "tensors         part by step %d, %d of them\n", d.TensorsAt, len(d.Tensors))
		for i, t := range d.Tensors {
			if i == tensorsShown {
				fmt.Fprintf(w, "  … and %d more\n", len(d.Tensors)-i)
				break
			}
			fmt.Fprintln(w, " ", t)
		}
	}
}

// showSeen says which tensor of those that were written down is the first to differ.
func showSeen(w io.Writer, d *record.Comparison) {
	switch {
	case d.Seen != nil:
		fmt.Fprintf(w, "written down    part at %v\n", d.Seen)
	case d.SeenSteps > 0:
		fmt.Fprintf(w, "written down    the same until step %d\n", d.SeenSteps)
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
