package format

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/dataset"
)

// A job of `lfactor data ingest` is a data set too: its annotations are read as the samples that converting
// them would write, so that training can begin on the first of them. Nothing is written.
var _ = dataset.Register(dataset.Format{
	Name: "job",
	Doc:  "a job of `lfactor data ingest`, read without converting first",
	Kind: dataset.KindParts,
	Match: func(path string, head []byte) bool {
		return HasSuffix(path, ".yaml", ".yml") && bytes.Contains(head, []byte("sources:")) &&
			!bytes.Contains(head, []byte("Metadataset"))
	},
	Open: func(path string, o dataset.Options) (dataset.Source, error) {
		j, err := LoadJob(path)
		if err != nil {
			return nil, err
		}
		return j.open(o)
	},
	Write: func(dir string, docs []dataset.Document) (string, dataset.Options, error) {
		path := filepath.Join(dir, "job.yaml")
		set := filepath.Join(dir, "set")
		if err := os.Mkdir(set, 0o755); err != nil {
			return path, dataset.Options{}, err
		}
		if _, _, err := writeEnergon(set, docs); err != nil {
			return path, dataset.Options{}, err
		}
		return path, dataset.Options{},
			os.WriteFile(path, fmt.Appendf(nil, "output: %q\nsources:\n  - {shards: %q}\n", dir, set), 0o644)
	},
})

// Job is a whole job from sources to shards.
type Job struct {
	Output     string      `yaml:"output"`
	Sources    []JobSource `yaml:"sources"`
	MaxCount   int64       `yaml:"maxcount"`
	MaxSize    float64     `yaml:"maxsize"` // 3e9 is how people write it
	Workers    int         `yaml:"workers"`
	Quarantine int64       `yaml:"quarantine"`
	Pack       *JobPack    `yaml:"pack"`
}

// JobSource is annotations to convert, or shards that are there.
type JobSource struct {
	JSON       string `yaml:"json"`
	ImageDir   string `yaml:"image_dir"`
	VideoDir   string `yaml:"video_dir"`
	Media      string `yaml:"media"`
	Messages   string `yaml:"columns_messages"`
	SampleType string `yaml:"sample_type"`
	Shards     string `yaml:"shards"`
}

// JobPack says how the samples of a job are packed.
type JobPack struct {
	Model     string `yaml:"model"`
	Template  string `yaml:"template"`
	Algorithm string `yaml:"algorithm"`
	Tokens    int    `yaml:"max_tokens"`
	Images    int    `yaml:"max_images"`
	Type      string `yaml:"packed_type"`
}

// LoadJob reads a job and checks it. Keys that are not known are errors.
func LoadJob(file string) (*Job, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	j := &Job{Workers: runtime.NumCPU(), Quarantine: 100}
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

// Source is the folder that source i is converted to.
func (j *Job) Source(i int) string { return filepath.Join(j.Output, fmt.Sprintf("source-%d", i)) }

// Annotations are the options of source i, which is annotations.
func (j *Job) Annotations(i int) AnnotationOptions {
	s := j.Sources[i]
	return AnnotationOptions{JSONFile: s.JSON, ImageDir: s.ImageDir, VideoDir: s.VideoDir, MaxCount: j.MaxCount,
		MaxSize: int64(j.MaxSize), Media: s.Media, Messages: s.Messages, SampleType: s.SampleType}
}

// open opens the sources as they are.
func (j *Job) open(o dataset.Options) (dataset.Source, error) {
	var all []dataset.Source
	for i, s := range j.Sources {
		var one dataset.Source
		var err error
		if s.JSON != "" {
			one, err = OpenAnnotations(j.Annotations(i))
		} else {
			inner := o
			inner.Format = ""
			one, err = dataset.Open(s.Shards, inner)
		}
		if err != nil {
			_ = closeAll(all) // they were only read
			return nil, fmt.Errorf("source %d: %w", i, err)
		}
		all = append(all, one)
	}
	return dataset.Concat(all...)
}
