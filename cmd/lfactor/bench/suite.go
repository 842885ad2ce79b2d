package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/bench/suite"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// suiteBench runs all tasks and enters the machine into a leaderboard.
func suiteBench() *cobra.Command {
	var names []string
	for _, t := range suite.Tasks(1) {
		names = append(names, fmt.Sprintf("  %-10s  %s", t.Name, t.Doc))
	}
	c := &cobra.Command{Use: "suite", Short: "Run a fixed list of tasks, and enter this machine into a leaderboard", Args: cobra.NoArgs,
		Long: "Tasks of speed stand beside what the machine could do by its measured peaks; tasks of quality learn until they are judged, and their time counts from a " +
			"target on. All take some\ntwenty minutes on two cores, and want a machine that does nothing else. Exit code 1 says that a task failed.\n\n" + strings.Join(names, "\n"),
		Example: "  lfactor bench suite --name \"laptop of Ada\" --out bench\n  lfactor bench suite --only step-bf16,simulate"}
	o := suite.Options{}
	f := c.Flags()
	out := f.String("out", "lfactor-suite", "folder that gets report.html and what tasks write")
	board := f.String("leaderboard", "", "file of reports, a line each, that this one is entered into (default leaderboard.jsonl in --out)")
	f.StringSliceVar(&o.Only, "only", nil, "names of tasks, by commas")
	f.IntVar(&o.Runs, "runs", 5, "runs of tasks of speed; the median counts")
	f.IntVar(&o.Threads, "threads", runtime.NumCPU(), "kernel threads of training steps")
	f.StringVar(&o.Name, "name", "", "how the leaderboard calls this machine or you")
	c.RunE = func(c *cobra.Command, _ []string) error {
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		if o.Runs < 1 || o.Threads < 1 {
			return exit.Usagef("--runs %d, --threads %d: want at least 1", o.Runs, o.Threads)
		}
		if *board == "" {
			*board = filepath.Join(*out, "leaderboard.jsonl")
		}
		if _, err := suite.Board(*board); err != nil { // before minutes are spent
			return exit.With(err, exit.Usage)
		}
		if err := os.MkdirAll(*out, 0o755); err != nil {
			return err
		}
		r, err := runSuite(c, o, *out)
		if err != nil {
			return err
		}
		all, err := suite.Enter(*board, r)
		if err != nil {
			return err
		}
		page, err := suite.Page(r, all, o.Threads)
		if err == nil {
			err = os.WriteFile(filepath.Join(*out, "report.html"), page, 0o644)
		}
		if err != nil {
			return err
		}
		if form != "text" {
			err = cli.PrintJSON(r)
		} else {
			printSuite(r, *out)
		}
		return errors.Join(err, suiteFailed(r))
	}
	return c
}

// runSuite carries the tasks out, in this program's own processes.
func runSuite(c *cobra.Command, o suite.Options, out string) (*suite.Report, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if o.Dir, err = os.MkdirTemp(out, "tasks-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(o.Dir)
	see, end := cli.Tell(c.ErrOrStderr(), "the machine at rest")
	defer end()
	load := machine.NewLoad()
	time.Sleep(time.Second)
	o.Program, o.Version, o.Now, o.Others, o.Tell = program, cli.Version(), time.Now(), load.Others(), see
	r, err := suite.Run(c.Context(), o)
	switch {
	case c.Context().Err() != nil:
		return nil, exit.With(errors.New("interrupted; nothing was entered"), exit.Interrupted)
	case err != nil:
		return nil, exit.With(err, exit.Usage)
	}
	return r, nil
}

func printSuite(r *suite.Report, out string) {
	t := table.NewWriter()
	t.SetOutputMirror(cli.Out)
	t.AppendHeader(table.Row{"task", "median", "unit", "of what it could", "quality", ""})
	for _, x := range r.Results {
		of, quality, said := "", "", x.Why
		if x.OfFloor > 0 {
			of = fmt.Sprintf("%.0f %%", 100*x.OfFloor)
		}
		if x.Target > 0 {
			quality = fmt.Sprintf("%.3g of %.3g", x.Quality, x.Target)
		}
		if x.Passed {
			said = "ok"
		}
		t.AppendRow(table.Row{x.Task, suite.Figure(x.Median), x.Unit, of, quality, said})
	}
	t.Render()
	fmt.Fprintf(cli.Out, "%s, %d cores: %s\n", r.Machine.Processor, r.Machine.Cores, filepath.Join(out, "report.html"))
}

// suiteFailed is an error where a task failed.
func suiteFailed(r *suite.Report) error {
	var failed []string
	for _, x := range r.Results {
		if !x.Passed {
			failed = append(failed, x.Task)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
}
