package bench

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/bench/growth"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
)

// growthBench says how costs of verbs grow.
func growthBench() *cobra.Command {
	c := &cobra.Command{Use: "growth [VERB/SIZE ...]", Short: "Measure how the time and memory of verbs grow with the sizes of what they are given",
		Long: "Every verb runs at four sizes or more, each twice the one before, until it takes a second, and four times as long as at first.\n" +
			"Of processor time and resident memory it tells the exponent p of the nearest curve a + b·n^p, and in parentheses the least p\n" +
			"whose curve is within 8 % of all points (and 24 ms, 8 MiB). A cost grows too fast if that is more than 1.05 of what the work\n" +
			"needs by its nature; the exit code is 1 then. All cases take about half an hour on two cores. No clock is read, so that other\n" +
			"programs beside matter little.",
		Example: "  lfactor bench growth\n  lfactor bench growth sim plan/hosts --runs 1"}
	o := growth.Options{}
	f := c.Flags()
	f.IntVar(&o.Runs, "runs", 2, "runs at each size; the least cost counts")
	f.IntVar(&o.Most, "sizes", 9, "sizes of a case at most")
	list := f.Bool("list", false, "list the cases")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		cases, err := growth.Chosen(args)
		if err != nil {
			return exit.With(err, exit.Usage)
		}
		if o.Runs < 1 || o.Most < growth.Fewest {
			return exit.Usagef("--runs %d, --sizes %d: want at least 1 and %d", o.Runs, o.Most, growth.Fewest)
		}
		if *list {
			for _, x := range cases {
				fmt.Fprintln(cli.Out, x.Name())
			}
			return nil
		}
		show := func(*growth.Result) {}
		if form == "text" {
			fmt.Fprintf(cli.Out, growthLine, "case", "sizes", "CPU seconds", "p (least)", "MiB", "p (least)", "")
			show = printGrowth
		}
		results, err := runGrowth(c, cases, o, show)
		if err != nil {
			return err
		}
		if form != "text" {
			err = cli.PrintJSON(results)
		}
		return errors.Join(err, growthFailed(results))
	}
	return c
}

func runGrowth(c *cobra.Command, cases []growth.Case, o growth.Options, show func(*growth.Result)) (out []*growth.Result, err error) {
	if o.Program, err = os.Executable(); err != nil {
		return nil, err
	}
	if o.Dir, err = os.MkdirTemp("", "lfactor-growth-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(o.Dir)
	see, end := cli.Tell(c.ErrOrStderr(), "growth")
	defer end()
	for i := range cases {
		o.Tell = func(name string, n int) { see(fmt.Sprintf("%s %d", name, n), i, len(cases)) }
		r := growth.Measure(c.Context(), &cases[i], o)
		if c.Context().Err() != nil {
			return nil, exit.With(errors.New("interrupted"), exit.Interrupted)
		}
		show(r)
		out = append(out, r)
	}
	return out, nil
}

const growthLine = "%-19s %-31s %-39s %-12s %-31s %-12s %s\n"

// printGrowth prints a case as soon as it is measured: all take long.
func printGrowth(r *growth.Result) {
	var sizes, cpu, memory []string
	for _, p := range r.Points {
		sizes = append(sizes, fmt.Sprint(p.N))
		cpu, memory = append(cpu, fmt.Sprintf("%.2f", p.CPU)), append(memory, fmt.Sprint(p.Memory>>20))
	}
	curve := func(f growth.Fit) string { return fmt.Sprintf("%.2f (%.2f)", f.Exponent, f.Least) }
	said := r.Why
	if over := r.Over(); len(over) > 0 {
		said = strings.Join(over, " and ") + " too fast"
	}
	if r.Failed != "" {
		said = "failed: " + r.Failed
	}
	fmt.Fprintf(cli.Out, growthLine, r.Case, strings.Join(sizes, " "), strings.Join(cpu, " "), curve(r.Time), strings.Join(memory, " "), curve(r.Memory), said)
}

// growthFailed is an error where a cost grows too fast, or a case could not be measured.
func growthFailed(results []*growth.Result) error {
	var said []string
	for _, r := range results {
		for _, what := range r.Over() {
			said = append(said, fmt.Sprintf("%s: %s", r.Case, what))
		}
		if r.Failed != "" {
			said = append(said, r.Case+": failed")
		}
	}
	if len(said) == 0 {
		return nil
	}
	return fmt.Errorf("costs that grow faster than their work: %s", strings.Join(said, ", "))
}
