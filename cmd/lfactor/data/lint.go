package data

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
)

// lintReport is a report that can be printed.
type lintReport struct{ *setup.LintReport }

func dataLint() *cobra.Command {
	c := &cobra.Command{Use: "lint [PATH…] [--config RUN.yaml]",
		Short: "Read data to the end and list what training would set aside",
		Long: "With --config the training data of that run is read as the run would: with its tokenizer, " +
			"chat template, processor and lengths; words behind\nare KEY=VALUE. Without, files are read, and with " +
			"--model also made tokens of. Also reported are samples with the key of an earlier one,\nand shards " +
			"of an Energon data set that have other counts than it says. The exit code is 4 if anything is found."}
	o, named := openFlags(c), &sftFlags{}
	named.add(c)
	var config, model string
	c.Flags().StringVar(&config, "config", "", "file of a run whose training data is read as it would read it")
	c.Flags().StringVar(&model, "model", "",
		"folder of a model, whose tokenizer has to know all ids and whose template all conversations")
	c.RunE = func(c *cobra.Command, args []string) error {
		r := lintReport{LintReport: setup.NewLint()}
		if config == "" && len(args) == 0 {
			return exit.Usagef("name a PATH, or a run's file with --config")
		}
		if config != "" {
			if err := r.run(c, config, args); err != nil {
				return err
			}
			return r.report(c)
		}
		for _, path := range args {
			o, err := named.options(*o, path)
			if err != nil {
				return err
			}
			if err := r.Lint(c.Context(), path, model, o); err != nil {
				return err
			}
		}
		return r.report(c)
	}
	return c
}

// run lints the training data of a run.
func (r lintReport) run(c *cobra.Command, config string, args []string) error {
	in, err := run.Inspect(c.Context(), config, args,
		func(b dataset.Bad) { r.Find("%s document %d: %s: %s", b.Source, b.Document, b.Place, b.Reason) })
	if c.Context().Err() != nil {
		return exit.With(errors.New("interrupted"), exit.Interrupted)
	}
	r.Documents, r.Run = in.Documents, &in
	return err
}

// report writes what was found.
func (r lintReport) report(c *cobra.Command) error {
	err := cli.Emit(c, r, func(w io.Writer) {
		for _, f := range r.Findings {
			fmt.Fprintln(w, f)
		}
		if r.Run != nil {
			for _, why := range slices.Sorted(maps.Keys(r.Run.Left)) {
				fmt.Fprintf(w, "%d documents are left out: %s\n", r.Run.Left[why], why)
			}
			fmt.Fprintf(w, "%d tokens; %d documents are longer than a row, of %d nothing would be learnt\n",
				r.Run.Tokens, r.Run.Long, r.Run.Unlearnt)
		}
		fmt.Fprintf(w, "%d documents, %d findings\n", r.Documents, r.Bad)
	})
	if err == nil && r.Bad > 0 {
		err = exit.With(fmt.Errorf("%d findings in %d documents", r.Bad, r.Documents), exit.Data)
	}
	return err
}

func dataStat() *cobra.Command {
	c := &cobra.Command{Use: "stat PATH…", Short: "Count documents, their lengths and parts",
		Args: cobra.MinimumNArgs(1), Long: "Lengths are bytes; with --model they are tokens, as training would " +
			"see them, and documents that give none are bad."}
	o, named := openFlags(c), &sftFlags{}
	named.add(c)
	var model, kind string
	c.Flags().StringVar(&model, "model", "", "folder of a model, to count its tokens")
	c.Flags().StringVar(&kind, "sample_type", "", "type of the samples; by default each tells")
	c.RunE = func(c *cobra.Command, args []string) error {
		var options []dataset.Options
		for _, path := range args {
			o, err := named.options(*o, path)
			if err != nil {
				return err
			}
			options = append(options, o)
		}
		r, err := setup.Stat(c.Context(), args, options, model, kind)
		if err != nil {
			return err
		}
		return cli.Emit(c, r, func(w io.Writer) { writeStat(w, r) })
	}
	return c
}

// barWidth is the longest bar of a histogram, in characters.
const barWidth = 50

// writeStat writes the counts for people.
func writeStat(w io.Writer, r *setup.StatReport) {
	fmt.Fprintf(w, "%d documents (%s), %d bad, %d %s\n", r.Documents, r.Kind, r.Bad, r.Units, r.Unit)
	if r.Messages > 0 {
		fmt.Fprintf(w, "%d messages\n", r.Messages)
	}
	for _, n := range slices.Sorted(maps.Keys(r.Parts)) {
		fmt.Fprintf(w, "part %-12s %10d times %14d bytes\n", n, r.Parts[n].Count, r.Parts[n].Bytes)
	}
	most := int64(1)
	for _, n := range r.Modality {
		most = max(most, n)
	}
	for _, m := range slices.Sorted(maps.Keys(r.Modality)) {
		n := r.Modality[m]
		fmt.Fprintf(w, "%-24s %10d %s\n", m, n, strings.Repeat("█", int((n*barWidth+most-1)/most)))
	}
	most = 1
	for _, n := range r.Histogram {
		most = max(most, n)
	}
	for i, n := range r.Histogram {
		if n > 0 {
			fmt.Fprintf(w, "below %12d %s %10d %s\n", int64(1)<<i, r.Unit, n,
				strings.Repeat("█", int((n*barWidth+most-1)/most)))
		}
	}
}
