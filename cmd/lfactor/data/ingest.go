package data

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/setup"
)

const ingestHelp = `JOB.yaml names sources, and what becomes of them:

  output: out                  # gets out/source-0, … and, with pack, out/packed
  sources:
    - {json: a.jsonl, image_dir: images, sample_type: multi_mix_qa}   # also video_dir, media, columns_messages
    - {shards: "s3://bucket/old-{000..099}.tar"}                      # shards that are there, in any place they are read from
  maxcount: 10000              # samples and bytes of a shard
  maxsize: 3e9
  workers: 4                   # entries read, and samples counted, at once
  quarantine: 100              # entries of a source that may be set aside
  pack: {model: Qwen2-VL, max_tokens: 8192, algorithm: best-fit-decreasing}   # also template, max_images, packed_type

Paths are relative to where lfactor is started. A job can also be named in data.paths of a run: its annotations are then
read as they are, and training begins on the first of them. A job that was cut off, however that happened, goes on when it is started
again, and ends with the same bytes.

With --follow it takes shards as a producer puts them, in place of a JOB, into a data set that grows: those that are whole are copied to FOLDER/shards, and
FOLDER/manifest.jsonl says which have come together (a generation). The producer's place is a pattern of files or objects, or with --from a list or a queue. A run with data.follow=true and data.paths=[FOLDER/manifest.jsonl] learns
generation after generation and waits for the next. What is torn, changed later or removed is in FOLDER/quarantine.jsonl. It ends when it is
interrupted, and goes on when it is started again; with --idle the data set ends when nothing has come for so long.`

func dataIngest() *cobra.Command {
	c := &cobra.Command{Use: "ingest JOB.yaml | ingest --follow PATTERN --to FOLDER",
		Short: "Carry out a whole job from annotations and media to packed shards, or take shards as they come",
		Args:  cobra.MaximumNArgs(1), Long: ingestHelp}
	f := followFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.Pattern != "" {
			return f.run(c, args)
		}
		if len(args) != 1 {
			return exit.Usagef("name a JOB.yaml, or what to follow with --follow")
		}
		job, err := format.LoadJob(args[0])
		if err != nil {
			return exit.With(err, exit.Usage)
		}
		return everywhere(c, job.Output, func() (dataset.Work, func(), error) {
			return setup.IngestWork(job)
		}, func(hosts dataset.Remote) error { return ingest(c, job, hosts) })
	}
	spreads(c, func(args []string) []string { return args })
	return c
}

// ingest carries out a job and prints what it did.
func ingest(c *cobra.Command, job *format.Job, hosts dataset.Remote) error {
	shown := map[string]*progress{}
	r, err := setup.Ingest(c.Context(), job, func(part string, done, all, bytes int64, more string,
		stages []dataset.Stage) {
		if shown[part] == nil {
			shown[part] = newProgress(c.ErrOrStderr())
		}
		shown[part].show(done, all, bytes, part+": "+more, stages)
	}, hosts)
	if err != nil {
		return dataError(c.Context(), err)
	}
	return cli.Emit(c, r, func(w io.Writer) { writeIngest(w, r) })
}

// writeIngest writes a report for people.
func writeIngest(w io.Writer, r *setup.IngestReport) {
	for i, c := range r.Converted {
		if c.Entries > 0 {
			fmt.Fprintf(w, "source %d: %d samples in %d shards, %d of %d entries set aside\n", i, c.Samples,
				c.Shards, c.Bad, c.Entries)
		}
	}
	if p := r.Packed; p != nil {
		fmt.Fprintf(w, "packed: %d samples in %d packs, %.1f %% full, in %d shards; %d too long, %d "+
			"left, %d set aside\n", p.Samples, p.Packs, 100*p.Fill, p.Shards, p.Overlong, p.Left, p.Bad)
	}
	if r.Output != "" {
		fmt.Fprintf(w, "train on %s\n", r.Output)
	}
}
