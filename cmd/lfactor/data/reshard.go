package data

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/recipe"
)

const reshardHelp = `The documents of PATH, in their order or in one that --shuffle draws, are written anew: in files of another size or number, another format, or compressed otherwise, with all columns.
It is the recipe without steps (lfactor data run), so that it goes on where it was cut off, to the same bytes, and says what it could not read.`

func dataReshard() *cobra.Command {
	c := &cobra.Command{Use: "reshard PATH… --to FOLDER",
		Short: "Write texts, conversations and samples in files of another size or format",
		Long:  reshardHelp, Args: cobra.MinimumNArgs(1)}
	o := openFlags(c)
	f := c.Flags()
	to := f.String("to", "", "folder that gets the files; a new one")
	form := f.String("as", "", "format of the files: arrow, jsonl, mds, parquet or webdataset; by default "+
		"jsonl, and webdataset for its shards, whose files no other keeps")
	compress := f.String("compress", "", "gzip or zstd, of jsonl and webdataset")
	documents := f.Int64("documents", 100_000, "documents of a file")
	files := f.Int64("files", 0, "in place of --documents: how many files, of the same number of documents")
	shuffle := f.Int64("shuffle", 0, "seed of an order in which the documents are written; 0 keeps theirs")
	workers := f.Int("workers", 0, "files made at once; by default as many as there are processors")
	quarantine := f.Int64("max-bad", 100, "unreadable documents that are set aside")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *to == "" {
			return exit.Usagef("--to: name a folder")
		}
		if *form == "" {
			*form = "jsonl"
			if samples, err := ofSamples(args, *o); err != nil {
				return dataError(c.Context(), err)
			} else if samples {
				*form = "webdataset"
			}
		}
		out := map[string]any{"format": *form, "compress": *compress, "documents": *documents}
		if *files != 0 {
			if c.Flags().Changed("documents") {
				return exit.Usagef("--files and --documents both say how many files there are; leave one out")
			}
			delete(out, "documents")
			out["files"] = *files
		}
		file := map[string]any{"output": *to, "quarantine": *quarantine,
			"inputs": []map[string]any{{"name": "input", "paths": args, "format": o.Format, "text_key": o.TextKey,
				"split": o.Split, "max_bytes": o.BytesMax, "shuffle": *shuffle}}, "outputs": []map[string]any{out}}
		if *workers != 0 {
			file["workers"] = *workers
		}
		text, err := json.Marshal(file) // which is YAML too
		if err != nil {
			return err
		}
		r, err := recipe.Parse("reshard", text)
		if err != nil {
			return exit.With(err, exit.Usage)
		}
		return carryOut(c, r, dataset.Remote{})
	}
	return c
}

// ofSamples says whether the first file of a path has samples of several files.
func ofSamples(paths []string, o dataset.Options) (bool, error) {
	for _, p := range paths {
		files, err := dataset.ExpandPaths(p)
		if err != nil || len(files) == 0 {
			return false, err
		}
		s, err := dataset.Open(files[0], o)
		if err != nil {
			return false, err
		}
		kind := s.Kind()
		if err := s.Close(); err != nil || kind.Form() == dataset.InParts {
			return true, err
		}
	}
	return false, nil
}
