// Package data is the verb of that name: it parses, calls and prints.
package data

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// Command is lfactor data: a look into data sets, and into what a run read of them.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "data", Short: "Look into data sets, and into what a run read of them",
		Long: "PATH is a file, a folder or a pattern (\"shards/*.jsonl\", \"s-{000..010}.tar\") in any format that training reads."}
	c.AddCommand(dataBench(), dataConvert(), dataPack(), dataTokenizer(), dataFast(), dataRobots(), dataTokenize(),
		dataIngest(), dataRoom(), dataRun(), dataReshard(), dataServe(), dataPreview(), dataView(), dataLint(),
		dataStat(), dataIndex(), dataQuarantine(), dataBlame())
	return c
}

// openFlags adds the flags that say how data is opened.
func openFlags(c *cobra.Command) *dataset.Options {
	o := &dataset.Options{}
	c.Flags().StringVar(&o.Format, "format", "", "name of the format; by default the files tell")
	c.Flags().StringVar(&o.TextKey, "text-key", "", "key or column that holds the text (default \"text\")")
	c.Flags().StringVar(&o.Split, "split", "", "part of a data set with named parts (default \"train\")")
	c.Flags().Int64Var(&o.BytesMax, "max-bytes", 0, "bytes from which on a sample is bad (default 64 MiB)")
	return o
}

func dataIndex() *cobra.Command {
	c := &cobra.Command{Use: "index PATH…",
		Short: "Write the index of tar shards next to them (SHARD.idx, as Megatron-Energon does)",
		Long:  "PATH is a tar shard, a pattern of shards, or an Energon data set.",
		Args:  cobra.MinimumNArgs(1)}
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
		return cli.Emit(c, samples, func(w io.Writer) {
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
	c := &cobra.Command{Use: "quarantine [RUN]",
		Short: "List the samples that a run set aside, with place and reason", Args: cobra.MaximumNArgs(1)}
	c.RunE = func(c *cobra.Command, args []string) error {
		list, err := dataset.ReadQuarantine(filepath.Join(runDir(args), "quarantine.jsonl"))
		if err != nil {
			return err
		}
		return cli.Emit(c, list, func(w io.Writer) {
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
