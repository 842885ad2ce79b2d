package data

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/curate"
	"github.com/lfactor/lfactor/dataset/recipe"
	"github.com/lfactor/lfactor/topology/machine"
)

const runHelp = `RECIPE.yaml is a dataflow:

  output: clean                  # a new folder: gets the files, dropped.jsonl, report.json and report.html
  inputs:
    - {name: web, path: "crawl/*.jsonl.zst", text_key: content}   # also paths, format, documents, split, max_bytes, shuffle
    - {name: books, path: books.parquet}
  steps:                         # each reads the one before, the first all inputs, unless "from" names others
    - {step: language, model: lid.176.bin, languages: [en], from: web}
    - {step: gopher_quality, min_doc_words: 40, from: [language, books]}
    - {name: near, step: minhash_dedup}
  outputs:                       # one of the last step as JSON lines where none is given
    - {name: data, format: jsonl, compress: zstd, documents: 100000}   # or files: 64, of the same number of documents
  workers: 8                     # the processors of this host, unless given; the bytes do not depend on it
  memory: 4GiB                   # for sorting; what does not fit is laid down in clean/.work
  quarantine: 100                # unreadable documents that are set aside

The plan is shown first, with times predicted from a sample. A recipe that was cut off, however that happened, goes on when
it is started again, and ends with the same bytes.

Steps and their settings with defaults:

`

// stepsHelp lists the steps.
func stepsHelp() string {
	var b strings.Builder
	for _, k := range curate.Kinds() {
		fmt.Fprintf(&b, "  %-18s %s\n  %-18s %s\n", k.Name, k.Doc, "", k.Source)
		for _, l := range curate.Defaults(k) {
			fmt.Fprintf(&b, "  %-18s   %s\n", "", l)
		}
	}
	b.WriteString("\nFormats of outputs:\n\n")
	for _, w := range recipe.Writers() {
		fmt.Fprintf(&b, "  %-18s %s\n", w.Name, w.Doc)
	}
	return b.String()
}

func dataRun() *cobra.Command {
	c := &cobra.Command{Use: "run RECIPE.yaml", Short: "Make a corpus clean: a dataflow of filters and deduplication",
		Args: cobra.ExactArgs(1), Long: runHelp + stepsHelp()}
	dry := c.Flags().Bool("plan", false, "show the plan and end")
	c.RunE = func(c *cobra.Command, args []string) error {
		r, err := recipe.Load(args[0])
		if err != nil {
			return exit.With(err, exit.Usage)
		}
		if *dry {
			p, err := recipe.MakePlan(c.Context(), r)
			if err != nil {
				return dataError(c.Context(), err)
			}
			return cli.Emit(c, p, func(w io.Writer) { writePlan(w, p) })
		}
		return everywhere(c, r.Output, func() (dataset.Work, func(), error) { return recipe.Work(r) },
			func(hosts dataset.Remote) error { return carryOut(c, r, hosts) })
	}
	spreads(c, func(args []string) []string { return args })
	return c
}

// carryOut shows a recipe's plan and carries it out.
func carryOut(c *cobra.Command, r *recipe.Recipe, hosts dataset.Remote) error {
	p, err := recipe.MakePlan(c.Context(), r)
	if err != nil {
		return dataError(c.Context(), err)
	}
	writePlan(c.ErrOrStderr(), p)
	start, worked := time.Now(), machine.CPUSeconds()
	shown := map[string]*progress{}
	rep, err := recipe.Run(c.Context(), r, func(what string, done, all int64) {
		if shown[what] == nil {
			shown[what] = newProgress(c.ErrOrStderr())
		}
		shown[what].show(done, all, 0, what, nil)
	}, hosts)
	if err != nil {
		return dataError(c.Context(), err)
	}
	fmt.Fprintf(c.ErrOrStderr(), "%.1f s, and %.1f s of processors; predicted were %.1f and %.1f\n",
		time.Since(start).Seconds(), machine.CPUSeconds()-worked, p.Seconds, p.CPU)
	return cli.Emit(c, rep, func(w io.Writer) { writeReport(w, r.Output, rep) })
}

// writePlan writes a plan for people.
func writePlan(w io.Writer, p *recipe.Plan) {
	fmt.Fprintf(w, "%s: %d documents, %s of text\n", p.Recipe, p.Documents, unit.Bytes(float64(p.Bytes)))
	for i, s := range p.Stages {
		for _, way := range s.Ways {
			fmt.Fprintf(w, "  stage %d  %s → %s\n", i, strings.Join(way, " → "), s.Sink)
		}
	}
	for _, s := range p.Steps {
		kept := ""
		if s.In > 0 {
			kept = fmt.Sprintf("%d of %d stay", s.Out, s.In)
		}
		fmt.Fprintf(w, "  %-20s %-18s %9.1f s  %s\n", s.Name, s.Step, s.Seconds, kept)
	}
	fmt.Fprintf(w, "predicted from %d documents: %.1f s with %d workers, %s of work on disk\n", p.Sampled, p.Seconds,
		p.Workers, unit.Bytes(float64(p.Work)))
}

// writeReport writes a report for people.
func writeReport(w io.Writer, dir string, r *recipe.Report) {
	for _, in := range r.Inputs {
		fmt.Fprintf(w, "%-20s %d documents of %d files, %d unreadable\n", in.Name, in.Documents, in.Files,
			in.Unreadable)
	}
	for _, s := range r.Steps {
		fmt.Fprintf(w, "%-20s %d of %d stay\n", s.Name, s.Out, s.In)
		for _, reason := range slices.Sorted(maps.Keys(s.Dropped)) {
			fmt.Fprintf(w, "%-20s   %9d %s\n", "", s.Dropped[reason], reason)
		}
	}
	for _, o := range r.Outputs {
		fmt.Fprintf(w, "%s: %d documents in %d files of %s\n", o.Name, o.Documents, len(o.Files), dir)
		for _, reason := range slices.Sorted(maps.Keys(o.Dropped)) {
			fmt.Fprintf(w, "%-20s   %9d %s\n", "", o.Dropped[reason], reason)
		}
		if o.LeftOut > 0 {
			fmt.Fprintf(w, "%-20s   %9d files of samples are left out: %s does not keep them, and webdataset "+
				"does\n", "", o.LeftOut, o.Format)
		}
		if o.Note != "" {
			fmt.Fprintf(w, "%-20s   note: %s\n", "", o.Note)
		}
	}
}
