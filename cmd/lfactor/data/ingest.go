package data

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/cmd/lfactor/process"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
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
again, and ends with the same bytes.`

func dataIngest() *cobra.Command {
	c := &cobra.Command{Use: "ingest JOB.yaml", Short: "Carry out a whole job from annotations and media to packed shards", Args: cobra.ExactArgs(1), Long: ingestHelp}
	c.RunE = func(c *cobra.Command, args []string) error {
		job, err := format.LoadJob(args[0])
		if err != nil {
			return cli.Coded(err, cli.ExitUsage)
		}
		release, err := process.LockDir(args[0]+": output", job.Output)
		if err != nil {
			return err
		}
		defer release()
		r, err := (&ingest{job}).run(c)
		if err != nil {
			return dataError(c.Context(), err)
		}
		return cli.Emit(c, r, r.write)
	}
	return c
}

// ingestReport is what a job has done.
type ingestReport struct {
	Converted []format.ConvertReport `json:"converted"`
	Packed    *format.PackReport     `json:"packed,omitempty"`
	Seconds   float64                `json:"seconds"`
	Output    string                 `json:"output"` // the data set to train on; "" where that is several
}

func (r *ingestReport) write(w io.Writer) {
	for i, c := range r.Converted {
		if c.Entries > 0 {
			fmt.Fprintf(w, "source %d: %d samples in %d shards, %d of %d entries set aside\n", i, c.Samples, c.Shards, c.Bad, c.Entries)
		}
	}
	if p := r.Packed; p != nil {
		fmt.Fprintf(w, "packed: %d samples in %d packs, %.1f %% full, in %d shards; %d too long, %d left, %d set aside\n", p.Samples, p.Packs, 100*p.Fill, p.Shards, p.Overlong, p.Left, p.Bad)
	}
	if r.Output != "" {
		fmt.Fprintf(w, "train on %s\n", r.Output)
	}
}

// ingest carries out a job.
type ingest struct{ *format.Job }

// run converts each source and packs all together. What an earlier run finished is not done again.
func (j *ingest) run(c *cobra.Command) (*ingestReport, error) {
	start := time.Now()
	r := &ingestReport{}
	var sets []string
	for i, s := range j.Sources {
		done := format.ConvertReport{}
		path := s.Shards
		if s.JSON != "" {
			var err error
			path = filepath.Join(j.Output, fmt.Sprintf("source-%d", i))
			if done, err = j.convert(c, path, i); err != nil {
				return nil, fmt.Errorf("source %d: %w", i, err)
			}
		}
		r.Converted = append(r.Converted, done)
		sets = append(sets, path)
	}
	if len(sets) == 1 {
		r.Output = sets[0]
	}
	if j.Pack != nil {
		packed, err := j.pack(c, sets)
		if err != nil {
			return nil, fmt.Errorf("pack: %w", err)
		}
		r.Packed, r.Output = &packed, filepath.Join(j.Output, "packed")
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

func (j *ingest) convert(c *cobra.Command, dir string, i int) (format.ConvertReport, error) {
	p := newProgress(c.ErrOrStderr())
	conf := j.Convert(i, dir)
	conf.Progress = func(r format.ConvertReport) {
		p.show(r.Read, r.Entries, r.Bytes, fmt.Sprintf("source %d: %d shards, %d set aside", i, r.Shards, r.Bad), r.Stages)
	}
	return format.Convert(c.Context(), conf)
}

func (j *ingest) pack(c *cobra.Command, sets []string) (format.PackReport, error) {
	var sources []dataset.Source
	for _, path := range sets {
		s, err := dataset.Open(path, dataset.Options{})
		if err != nil {
			return format.PackReport{}, err
		}
		defer s.Close()
		sources = append(sources, s)
	}
	all, err := dataset.Concat(sources...)
	if err != nil {
		return format.PackReport{}, err
	}
	enc, err := VisionEncoder(j.Pack.Model, j.Pack.Template, "")
	if err != nil {
		return format.PackReport{}, err
	}
	p := newProgress(c.ErrOrStderr())
	return format.PackShards(c.Context(), format.PackConfig{OutputDir: filepath.Join(j.Output, "packed"), Source: all, Encoder: enc, Algorithm: j.Pack.Algorithm, Tokens: j.Pack.Tokens,
		Images: j.Pack.Images, PackedType: j.Pack.Type, MaxCount: j.MaxCount, MaxSize: int64(j.MaxSize), Workers: j.Workers, Budget: dataset.Budget{Count: j.Quarantine},
		Progress: func(step string, done, all int64, stages []dataset.Stage) {
			p.show(done, all, 0, "pack: "+step, stages)
		}})
}
