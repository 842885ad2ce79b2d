package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

var _ = add(func() *cobra.Command {
	c := &cobra.Command{Use: "data", Short: "Look into data sets, and into what a run read of them",
		Long: "PATH is a file, a folder or a pattern (\"shards/*.jsonl\", \"s-{000..010}.tar\") in any format that training reads."}
	c.AddCommand(dataBench(), dataConvert(), dataPack(), dataTokenize(), dataIngest(), dataPreview(), dataLint(), dataStat(), dataIndex(), dataQuarantine(), dataBlame())
	return c
})

// openFlags adds the flags that say how data is opened.
func openFlags(c *cobra.Command) *dataset.Options {
	o := &dataset.Options{}
	c.Flags().StringVar(&o.Format, "format", "", "name of the format; by default the files tell")
	c.Flags().StringVar(&o.TextKey, "text-key", "", "key or column that holds the text (default \"text\")")
	c.Flags().StringVar(&o.Split, "split", "", "part of a data set with named parts (default \"train\")")
	c.Flags().Int64Var(&o.BytesMax, "max-bytes", 0, "bytes from which on a sample is bad (default 64 MiB)")
	return o
}

// emit writes a result: as text by the function, else as JSON on one line.
func emit(c *cobra.Command, v any, text func(w io.Writer)) error {
	form, err := output(c)
	if err != nil {
		return err
	}
	if form != "text" {
		return json.NewEncoder(c.OutOrStdout()).Encode(v)
	}
	text(c.OutOrStdout())
	return nil
}

// eachDocument reads all of a source. A bad document goes to bad, and any other error ends it.
func eachDocument(c *cobra.Command, s dataset.Source, good func(i int64, d *dataset.Document), bad func(i int64, b *dataset.BadSample)) error {
	for i := range s.Len() {
		if err := c.Context().Err(); err != nil {
			return codedError{errors.New("interrupted"), exitInterrupted}
		}
		d, err := s.Read(i)
		var b *dataset.BadSample
		switch {
		case errors.As(err, &b):
			bad(i, b)
		case err != nil:
			return fmt.Errorf("document %d of %s: %w", i, s.Name(), err)
		default:
			good(i, &d)
		}
	}
	return nil
}

func dataIndex() *cobra.Command {
	c := &cobra.Command{Use: "index PATH…", Short: "Write the index of tar shards next to them (SHARD.idx, as Megatron-Energon does)",
		Long: "PATH is a tar shard, a pattern of shards, or an Energon data set.", Args: cobra.MinimumNArgs(1)}
	c.RunE = func(c *cobra.Command, args []string) error {
		samples := map[string]int64{}
		var names []string
		for _, path := range args {
			shards, err := shardsOf(path)
			if err != nil {
				return err
			}
			for _, s := range shards {
				if samples[s], err = format.WriteIndex(s); err != nil {
					return err
				}
				names = append(names, s)
			}
		}
		return emit(c, samples, func(w io.Writer) {
			for _, n := range names {
				fmt.Fprintf(w, "%s.idx: %d samples\n", n, samples[n])
			}
		})
	}
	return c
}

// shardsOf lists the shards of a pattern, or of all parts of an Energon data set.
func shardsOf(path string) (out []string, err error) {
	if _, err := os.Stat(filepath.Join(path, ".nv-meta")); err != nil {
		return dataset.ExpandPaths(path)
	}
	e, err := format.ReadEnergon(path)
	if err != nil {
		return nil, err
	}
	for _, n := range e.Shards() {
		out = append(out, filepath.Join(path, n))
	}
	return out, nil
}

func dataQuarantine() *cobra.Command {
	c := &cobra.Command{Use: "quarantine [RUN]", Short: "List the samples that a run set aside, with place and reason", Args: cobra.MaximumNArgs(1)}
	c.RunE = func(c *cobra.Command, args []string) error {
		list, err := dataset.ReadQuarantine(filepath.Join(runDir(args), "quarantine.jsonl"))
		if err != nil {
			return err
		}
		return emit(c, list, func(w io.Writer) {
			for _, b := range list {
				fmt.Fprintf(w, "%s document %d: %s: %s\n", b.Source, b.Document, b.Place, b.Reason)
			}
			fmt.Fprintf(w, "%d bad samples\n", len(list))
		})
	}
	return c
}

// runDir is the run directory that the first argument names.
func runDir(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return "runs/latest"
}

// blame is what a step saw.
type blame struct {
	Step    int64            `json:"step"`
	Start   dataset.Position `json:"start"`
	Samples []int64          `json:"samples"` // places in the run's global order
}

func dataBlame() *cobra.Command {
	c := &cobra.Command{Use: "blame RUN STEP", Short: "List the samples that a committed step of a run saw", Args: cobra.ExactArgs(2),
		Long: "Samples are places in the run's global order, which its seed and sources fix. STEP may be \"last\"."}
	c.RunE = func(c *cobra.Command, args []string) error {
		l, err := dataset.ReadLedger(filepath.Join(args[0], "samples.ledger"))
		if err != nil {
			return err
		}
		defer l.Close()
		last, ok := l.Last()
		if !ok {
			return fmt.Errorf("%s: no step is recorded", args[0])
		}
		b := blame{Step: last}
		if args[1] != "last" {
			if b.Step, err = strconv.ParseInt(args[1], 10, 64); err != nil {
				return usage("step %q: want a number or \"last\"", args[1])
			}
		}
		if b.Samples, b.Start, err = l.Blame(b.Step); err != nil {
			return fmt.Errorf("%w; the last recorded is %d", err, last)
		}
		return emit(c, b, func(w io.Writer) {
			fmt.Fprintf(w, "step %d began at sample %d of order %s and saw %d samples:\n", b.Step, b.Start.Sample, b.Start.Order, len(b.Samples))
			for _, s := range b.Samples {
				fmt.Fprintln(w, s)
			}
		})
	}
	return c
}
