package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// ingestJob is a whole job from sources to shards.
type ingestJob struct {
	Output     string         `yaml:"output"`
	Sources    []ingestSource `yaml:"sources"`
	MaxCount   int64          `yaml:"maxcount"`
	MaxSize    float64        `yaml:"maxsize"` // 3e9 is how people write it
	Workers    int            `yaml:"workers"`
	Quarantine int64          `yaml:"quarantine"`
	Pack       *ingestPack    `yaml:"pack"`
}

// ingestSource is annotations to convert, or shards that are there.
type ingestSource struct {
	JSON       string `yaml:"json"`
	ImageDir   string `yaml:"image_dir"`
	VideoDir   string `yaml:"video_dir"`
	Media      string `yaml:"media"`
	Messages   string `yaml:"columns_messages"`
	SampleType string `yaml:"sample_type"`
	Shards     string `yaml:"shards"`
}

type ingestPack struct {
	Model     string `yaml:"model"`
	Template  string `yaml:"template"`
	Algorithm string `yaml:"algorithm"`
	Tokens    int    `yaml:"max_tokens"`
	Images    int    `yaml:"max_images"`
	Type      string `yaml:"packed_type"`
}

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

Paths are relative to where lfactor is started. A job that was cut off, however that happened, goes on when it is started
again, and ends with the same bytes.`

func dataIngest() *cobra.Command {
	c := &cobra.Command{Use: "ingest JOB.yaml", Short: "Carry out a whole job from annotations and media to packed shards", Args: cobra.ExactArgs(1), Long: ingestHelp}
	c.RunE = func(c *cobra.Command, args []string) error {
		j, err := loadIngest(args[0])
		if err != nil {
			return codedError{err, exitUsage}
		}
		release, err := lockDir(args[0]+": output", j.Output)
		if err != nil {
			return err
		}
		defer release()
		r, err := j.run(c)
		if err != nil {
			return dataError(c.Context(), err)
		}
		return emit(c, r, r.write)
	}
	return c
}

func loadIngest(file string) (*ingestJob, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	j := &ingestJob{Workers: runtime.NumCPU(), Quarantine: 100}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(j); err != nil {
		return nil, fmt.Errorf("%s: %w; `lfactor data ingest --help` lists the keys", file, err)
	}
	switch {
	case j.Output == "":
		return nil, fmt.Errorf("%s: output is not given; name a folder", file)
	case len(j.Sources) == 0:
		return nil, fmt.Errorf("%s: no sources are given", file)
	case j.Workers < 1 || j.Quarantine < 0 || j.MaxCount < 0 || j.MaxSize < 0:
		return nil, fmt.Errorf("%s: a count is negative", file)
	case j.Pack != nil && (j.Pack.Model == "" || j.Pack.Tokens < 1):
		return nil, fmt.Errorf("%s: pack needs a model and max_tokens", file)
	}
	for i, s := range j.Sources {
		if (s.JSON == "") == (s.Shards == "") {
			return nil, fmt.Errorf("%s: source %d: want either json or shards", file, i)
		}
	}
	return j, nil
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

// run converts each source and packs all together. What an earlier run finished is not done again.
func (j *ingestJob) run(c *cobra.Command) (*ingestReport, error) {
	start := time.Now()
	r := &ingestReport{}
	var sets []string
	for i, s := range j.Sources {
		done := format.ConvertReport{}
		path := s.Shards
		if s.JSON != "" {
			var err error
			path = filepath.Join(j.Output, fmt.Sprintf("source-%d", i))
			if done, err = j.convert(c, s, path, i); err != nil {
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

func (j *ingestJob) convert(c *cobra.Command, s ingestSource, dir string, i int) (format.ConvertReport, error) {
	p := newProgress(c.ErrOrStderr())
	return format.Convert(c.Context(), format.ConvertConfig{OutputDir: dir, JSONFile: s.JSON, ImageDir: s.ImageDir, VideoDir: s.VideoDir, Media: s.Media, Messages: s.Messages,
		SampleType: s.SampleType, MaxCount: j.MaxCount, MaxSize: int64(j.MaxSize), Workers: j.Workers, Budget: dataset.Budget{Count: j.Quarantine},
		Progress: func(r format.ConvertReport) {
			p.show(r.Read, r.Entries, r.Bytes, fmt.Sprintf("source %d: %d shards, %d set aside", i, r.Shards, r.Bad), r.Stages)
		}})
}

func (j *ingestJob) pack(c *cobra.Command, sets []string) (format.PackReport, error) {
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
	enc, err := visionEncoder(j.Pack.Model, j.Pack.Template, "")
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
