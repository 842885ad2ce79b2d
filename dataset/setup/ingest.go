package setup

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/jobs"
	"github.com/lfactor/lfactor/topology/machine"
)

// IngestReport is what a job has done.
type IngestReport struct {
	Converted []jobs.ConvertReport `json:"converted"`
	Packed    *jobs.PackReport     `json:"packed,omitempty"`
	Seconds   float64              `json:"seconds"`
	Output    string               `json:"output"` // the data set to train on; "" where that is several
}

// ingest is a job under way.
type ingest struct {
	*format.Job
	see   Progress
	hosts dataset.Remote
}

// IngestWork is what hosts do for Ingest that are elsewhere; done closes what it has opened.
func IngestWork(job *format.Job) (work dataset.Work, done func(), err error) {
	parts := make([]jobs.ConvertConfig, len(job.Sources))
	for i, s := range job.Sources {
		if s.JSON != "" {
			parts[i] = jobs.ConvertOf(job, i, job.Source(i))
		}
	}
	return jobs.ConvertWork(parts)
}

// Progress sees how far a part of a job is: units done of all (0: not known), bytes of them, what else is to
// be said, and how busy the stages are.
type Progress func(part string, done, all, bytes int64, more string, stages []dataset.Stage)

// Ingest carries out a job: it converts each source and packs all together. What an earlier run finished is
// not done again, and a job that was cut off ends with the same bytes. It holds the output folder for this
// process; see may be nil. Entries are read by hosts, as IngestWork does it there.
func Ingest(ctx context.Context, job *format.Job, see Progress, hosts dataset.Remote) (*IngestReport, error) {
	if see == nil {
		see = func(string, int64, int64, int64, string, []dataset.Stage) {}
	}
	release, err := machine.LockDir("output of the job", job.Output)
	if err != nil {
		return nil, err
	}
	defer release()
	j := ingest{job, see, hosts}
	start := time.Now()
	r := &IngestReport{}
	var sets []string
	for i, s := range j.Sources {
		done := jobs.ConvertReport{}
		path := s.Shards
		if s.JSON != "" {
			var err error
			path = j.Source(i)
			if done, err = j.convert(ctx, path, i); err != nil {
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
		packed, err := j.pack(ctx, sets)
		if err != nil {
			return nil, fmt.Errorf("pack: %w", err)
		}
		r.Packed, r.Output = &packed, filepath.Join(j.Output, "packed")
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// convert converts source i of the job into shards in dir.
func (j ingest) convert(ctx context.Context, dir string, i int) (jobs.ConvertReport, error) {
	conf := jobs.ConvertOf(j.Job, i, dir)
	conf.Elsewhere = j.hosts
	conf.Elsewhere.Part = i
	conf.Progress = func(r jobs.ConvertReport) {
		j.see(fmt.Sprintf("source %d", i), r.Read, r.Entries, r.Bytes,
			fmt.Sprintf("%d shards, %d set aside", r.Shards, r.Bad), r.Stages)
	}
	return jobs.Convert(ctx, conf)
}

// pack packs the converted sets into one, in the order of the sources.
func (j ingest) pack(ctx context.Context, sets []string) (jobs.PackReport, error) {
	var sources []dataset.Source
	for _, path := range sets {
		s, err := dataset.Open(path, dataset.Options{})
		if err != nil {
			return jobs.PackReport{}, err
		}
		defer s.Close()
		sources = append(sources, s)
	}
	all, err := dataset.Concat(sources...)
	if err != nil {
		return jobs.PackReport{}, err
	}
	enc, err := VisionEncoder(j.Pack.Model, j.Pack.Template, "")
	if err != nil {
		return jobs.PackReport{}, err
	}
	return jobs.PackShards(ctx, jobs.PackConfig{OutputDir: filepath.Join(j.Output, "packed"),
		Source: all, Encoder: enc, Algorithm: j.Pack.Algorithm, Tokens: j.Pack.Tokens,
		Images: j.Pack.Images, PackedType: j.Pack.Type, MaxCount: j.MaxCount, MaxSize: int64(j.MaxSize),
		Workers: j.Workers, Budget: dataset.Budget{Count: j.Quarantine},
		Progress: func(step string, done, all int64, stages []dataset.Stage) {
			j.see("pack", done, all, 0, step, stages)
		}})
}
