package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/jobs"
)

func dataConvert() *cobra.Command {
	var names []string
	for _, t := range format.SampleTypes() {
		names = append(names, fmt.Sprintf("  %-20s %s", t.Name, t.Doc))
	}
	c := &cobra.Command{Use: "convert", Short: "Turn annotations, images and videos into webdataset shards for Energon",
		Args: cobra.NoArgs, Long: "The options are those of LoongForge's convert_to_webdataset.py. Each entry " +
			"of the annotations becomes a sample with its\nmedia; Python's webdataset and Megatron-Energon read the " +
			"result. A conversion that was cut off goes on when it is started again.\nEntries that cannot be used " +
			"are listed in OUTPUT_DIR/quarantine.jsonl.\n\nSample types (any other name is written as raw samples):\n" +
			strings.Join(names, "\n")}
	var conf jobs.ConvertConfig
	f := c.Flags()
	f.StringVar(&conf.OutputDir, "output_dir", "", "folder to write shards into")
	f.StringVar(&conf.JSONFile, "json_file", "", "annotations: .jsonl, .json (an array) or .parquet")
	f.StringVar(&conf.ImageDir, "image_dir", "", "folder that paths of images are relative to")
	f.StringVar(&conf.VideoDir, "video_dir", "", "folder that paths of videos are relative to")
	f.Int64Var(&conf.MaxCount, "maxcount", 10_000, "samples of a shard")
	f.Int64Var(&conf.MaxSize, "maxsize", 3_000_000_000, "bytes of files of a shard, after which the next begins")
	f.StringVar(&conf.Media, "media", "image", "mix, image or video")
	f.StringVar(&conf.Messages, "columns_messages", "messages", "key of the messages")
	f.StringVar(&conf.SampleType, "sample_type", "", "type of the samples")
	f.IntVar(&conf.Workers, "workers", runtime.NumCPU(), "entries read at once")
	f.Int64Var(&conf.MediaBytesMax, "max-media-bytes", 1<<30, "bytes from which on an image or video is set aside")
	f.Int64Var(&conf.Budget.Count, "quarantine", 100, "entries that may be set aside before it stops with exit code 4")
	for _, name := range []string{"output_dir", "json_file", "sample_type"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		p := newProgress(c.ErrOrStderr())
		conf.Progress = func(r jobs.ConvertReport) {
			p.show(r.Read, r.Entries, r.Bytes, fmt.Sprintf("%d shards, %d set aside", r.Shards, r.Bad), r.Stages)
		}
		return everywhere(c, conf.OutputDir, func() (dataset.Work, func(), error) {
			return jobs.ConvertWork([]jobs.ConvertConfig{conf})
		}, func(hosts dataset.Remote) error {
			conf.Elsewhere = hosts
			return convert(c, conf)
		})
	}
	spreads(c, noFiles)
	return c
}

// convert carries out a conversion and prints what it did.
func convert(c *cobra.Command, conf jobs.ConvertConfig) error {
	r, err := jobs.Convert(c.Context(), conf)
	if err != nil {
		return dataError(c.Context(), err)
	}
	return cli.Emit(c, r, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %d samples in %d shards, %d MB of files; %d of %d entries set aside",
			conf.OutputDir, r.Samples, r.Shards, r.Bytes/1e6, r.Bad, r.Entries)
		if r.Resumed > 0 {
			fmt.Fprintf(w, "; %d samples were there from a run that was cut off", r.Resumed)
		}
		fmt.Fprintln(w)
	})
}

// noFiles are those of a verb whose input lies on all hosts.
func noFiles([]string) []string { return nil }

// dataError gives an error of a data job its exit code.
func dataError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return exit.With(errors.New("interrupted; start it again to go on"), exit.Interrupted)
	}
	var spent *dataset.BudgetError
	if errors.As(err, &spent) || errors.Is(err, dataset.ErrNoTokens) {
		return exit.With(err, exit.Data)
	}
	return err
}

// progress writes how far a job is, and how busy its stages are.
type progress struct {
	*cli.Progress
	stages map[string]dataset.Stage // at the last time
}

func newProgress(out io.Writer) *progress {
	return &progress{cli.NewProgress(out), map[string]dataset.Stage{}}
}

// show tells done of all units, bytes of them (0: not told), what else is to be said, and how busy the
// stages of the job were since the last time: the busiest is what the others wait for.
func (p *progress) show(done, all, bytes int64, more string, stages []dataset.Stage) {
	p.Show(done, all, bytes, func(wall time.Duration) string { return more + p.use(stages, wall) })
}

// use tells how busy each stage was.
func (p *progress) use(stages []dataset.Stage, wall time.Duration) string {
	var since []dataset.Stage
	for _, s := range stages {
		d := s
		if before, ok := p.stages[s.Name]; ok {
			d.Busy -= before.Busy
		}
		p.stages[s.Name] = s
		since = append(since, d)
	}
	if len(since) == 0 {
		return ""
	}
	var b strings.Builder
	most := dataset.Bottleneck(since, wall)
	for _, s := range since {
		fmt.Fprintf(&b, "  %s %.0f %%", s.Name, 100*s.Use(wall))
		if s.Name == most.Name {
			b.WriteString(" (bottleneck)")
		}
	}
	return b.String()
}
