package data

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/topology/machine"
)

// viewing is the flags of data view.
type viewing struct {
	config, of, dropped, html, kind string
	n, steps, step                  int64
	overwrite                       bool
	open                            *dataset.Options
	named                           *sftFlags
	ofPaths                         []string // flags that say how to read PATH, and nothing of a run
}

const viewHelp = `The page is one file that loads nothing, with search and choice by source, kind and reason.
With --config it shows the first steps of that run: rows with their segments, what of them is
learnt, images and padding, and which share each source has. With --run it shows a step as the run in that
folder has trained it, by its ledger. PATH gives samples, spread evenly over
the data, with roles and media, and the reason of those that cannot be used; --dropped what
lfactor data run has dropped. A page that has enough says what it leaves out.`

func dataView() *cobra.Command {
	c := &cobra.Command{Use: "view [PATH…] [--config RUN.yaml [KEY=VALUE…]] [--run DIR] [--dropped DROPPED.jsonl]",
		Short: "Write an HTML page to look into data with: samples, rows as they will be trained, what was dropped",
		Long:  viewHelp}
	v := &viewing{open: openFlags(c), named: &sftFlags{}}
	v.named.add(c)
	f := c.Flags()
	f.VisitAll(func(g *pflag.Flag) { v.ofPaths = append(v.ofPaths, g.Name) })
	f.StringVar(&v.config, "config", "", "file of a run whose first steps are shown; words behind are KEY=VALUE")
	f.StringVar(&v.of, "run", "", "folder of a run (log.dir) of which a step is shown as it was trained")
	f.Int64Var(&v.step, "step", 0, "of --run; 0 is the newest that is recorded")
	f.StringVar(&v.dropped, "dropped", "", "dropped.jsonl of a recipe")
	f.StringVar(&v.html, "html", "view.html", "file to write; - writes to the standard output")
	f.BoolVar(&v.overwrite, "overwrite", false, "replace the file of --html where there is one")
	f.StringVar(&v.kind, "sample_type", "", "type of the samples; by default each tells")
	f.Int64VarP(&v.n, "number", "n", 20, "samples of a source to show")
	f.Int64Var(&v.steps, "steps", 2, "steps of the run to show")
	c.RunE = v.run
	return c
}

// run makes the page.
func (v *viewing) run(c *cobra.Command, args []string) error {
	switch {
	case v.config == "" && v.of == "" && v.dropped == "" && len(args) == 0:
		return exit.Usagef("name a PATH, a run's file with --config or its folder with --run, or what a " +
			"recipe dropped with --dropped")
	case v.of != "" && (v.config != "" || v.dropped != "" || len(args) > 0 || c.Flags().Changed("steps")):
		return exit.Usagef("--run shows one step of one run, with what recipes have dropped of its sources: " +
			"leave out PATH, --config, --dropped and --steps")
	case v.of == "" && c.Flags().Changed("step") || v.step < 0:
		return exit.Usagef("--step %d: want the number of a step of --run", v.step)
	case v.n < 0 || v.steps < 1:
		return exit.Usagef("-n %d, --steps %d: want numbers from 0 and from 1 on", v.n, v.steps)
	case v.html != "-" && !v.overwrite && machine.Exists(v.html):
		return exit.Usagef("%s is there already; name another file with --html, or replace it with --overwrite", v.html)
	case v.dropped != "" && !machine.Exists(v.dropped):
		return exit.Usagef("--dropped %s: there is no such file; name the dropped.jsonl of a "+
			"recipe's output", v.dropped)
	}
	for _, name := range v.ofPaths {
		if (v.of != "" || v.config != "") && c.Flags().Changed(name) {
			return exit.Usagef("--%s says how to read PATH; how a run reads its data its configuration says", name)
		}
	}
	page := &setup.View{Name: strings.Join(args, " ")}
	var err error
	switch {
	case v.config != "":
		page.Name = v.config
		err = v.rows(page, args)
	case v.of != "":
		err = v.trained(page)
	default:
		err = v.samples(page, args)
	}
	if err == nil && v.dropped != "" {
		err = page.AddDropped(v.dropped)
	}
	if err != nil {
		return err
	}
	if v.html == "-" {
		return page.Write(c.OutOrStdout())
	}
	f, err := os.Create(v.html)
	if err != nil {
		return err
	}
	if err := errors.Join(page.Write(f), f.Close()); err != nil {
		return err
	}
	return cli.Emit(c, map[string]any{"html": v.html, "samples": len(page.Samples), "rows": page.Totals.Rows,
		"dropped": len(page.Drops), "notes": append([]string{}, page.Notes...)}, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %d samples, %d rows of %d steps, %d dropped documents\n", v.html,
			len(page.Samples), page.Totals.Rows, len(page.Steps), len(page.Drops))
		for _, note := range page.Notes {
			fmt.Fprintln(w, note)
		}
	})
}

// samples shows samples of paths.
func (v *viewing) samples(page *setup.View, paths []string) error {
	for _, path := range paths {
		o, err := v.named.options(*v.open, path)
		if err != nil {
			return err
		}
		s, err := dataset.Open(path, o)
		if err != nil {
			return err
		}
		page.AddSource(s, 0)
		if err := errors.Join(page.AddSamples(s, v.n, v.kind, o.Tags), s.Close()); err != nil {
			return err
		}
	}
	return nil
}

// rows shows the first steps of a run, and samples of its sources.
func (v *viewing) rows(page *setup.View, args []string) error {
	return run.AddView(page, v.config, run.ViewOptions{Args: args, Steps: v.steps, Samples: v.n, Kind: v.kind})
}

// trained shows a step of a run as it was trained. The paths of the run's configuration begin where it was started,
// so this process goes there first, if the folder is still there; the files that flags name keep their places.
func (v *viewing) trained(page *setup.View) error {
	if dir := run.Elsewhere(filepath.Join(v.of, "run.yaml")); dir != "" {
		for _, path := range []*string{&v.of, &v.html} {
			if *path == "-" {
				continue
			}
			whole, err := filepath.Abs(*path)
			if err != nil {
				return err
			}
			*path = whole
		}
		if err := os.Chdir(dir); err != nil {
			return fmt.Errorf("%s was started in another folder: %w", v.of, err)
		}
	}
	return run.AddStep(page, v.of, v.step, run.ViewOptions{Samples: v.n, Kind: v.kind})
}
