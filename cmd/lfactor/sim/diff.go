package sim

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/rehearsal"
)

func diffCommand() *cobra.Command {
	return &cobra.Command{Use: "diff TRACE.json FILE.yaml [key=value ...] [--cluster NAME|FILE] [--svg FILE]",
		Short: "Lay a real run's trace over the simulated step and name the largest differences", Long: "TRACE.json " +
			"is what a run leaves in its log.dir (or what lfactor sim --trace has written); FILE.yaml and key=value " +
			"are those of that run.\n--cluster is the machine it ran on: lfactor calibrate measures this one. Of " +
			"each job the median over the recorded steps is compared.\n--svg draws both steps, one above the other.",
		DisableFlagParsing: true, ValidArgsFunction: cli.CompleteKeys, RunE: simDiff}
}

// simDiff compares the recorded trace of a run with the simulation of its step. Flags that only a
// simulation has are refused.
func simDiff(c *cobra.Command, args []string) error {
	if len(args) == 0 || slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		return c.Help()
	}
	if len(args) < 2 {
		return exit.Usagef("want a trace and the run's file, as in lfactor sim diff run/trace.json run.yaml")
	}
	jobs, cut, err := rehearsal.ReadTrace(args[0])
	if err != nil {
		return err
	}
	s, _, err := parseSim(args[1:])
	if err == nil {
		err = s.plan()
	}
	if err != nil {
		return err
	}
	if err := s.idle("a recorded run beside one", "seeds", "trace", "html", "faults", "explain", "fold", "shrink"); err != nil {
		return err
	}
	d, err := s.r.Diff(jobs, sim.Options{Seed: s.seed})
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	if cut {
		d.Notes = append(d.Notes, args[0]+" ends in the middle; what it has is compared")
	}
	if s.svg != "" {
		if err := d.SVG(s.svg); err != nil {
			return err
		}
	}
	return cli.EmitAs(cli.Out, s.form, d, d.Print)
}
