package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/actors/process"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
)

// streamBench reads data as fast as it can be read.
type streamBench struct {
	samples int64 // 0: each once
	readers int
	side    int // of a square that pictures are brought to; 0: files are not decoded
	options *dataset.Options
}

// benchReport is what was measured.
type benchReport struct {
	Samples   int64   `json:"samples"`
	Bad       int64   `json:"bad"`
	Bytes     int64   `json:"bytes"`
	Pictures  int64   `json:"pictures,omitempty"` // decoded
	Seconds   float64 `json:"seconds"`
	CPU       float64 `json:"cpu_seconds"`
	Rate      float64 `json:"samples_per_cpu_second"`
	MBRate    float64 `json:"mb_per_cpu_second"`
	OpenCPU   float64 `json:"open_cpu_seconds"` // to find the samples, once; not in cpu_seconds
	RSS       int64   `json:"rss_bytes"`
	SlopeMiB  float64 `json:"rss_slope_mib_per_100k"` // after the first 100,000 samples; 0 where there are fewer than 200,000
	PeakBytes int64   `json:"peak_rss_bytes"`
}

func dataBench() *cobra.Command {
	var b streamBench
	c := &cobra.Command{Use: "bench PATH…", Short: "Measure how fast data can be read; bench/data.py measures Python's webdataset beside it", Args: cobra.MinimumNArgs(1)}
	b.options = openFlags(c)
	c.Flags().Int64Var(&b.samples, "samples", 0, "samples to read, going over the data again as needed; by default each once")
	c.Flags().IntVar(&b.readers, "readers", 1, "shards read at once")
	c.Flags().IntVar(&b.side, "decode", 0, "also decode pictures and resize them to a square of so many pixels")
	c.RunE = func(c *cobra.Command, args []string) error {
		if b.readers < 1 || b.samples < 0 || b.side < 0 {
			return exit.Usagef("--readers %d, --samples %d, --decode %d: want positive numbers", b.readers, b.samples, b.side)
		}
		cpu := process.CPUSeconds()
		var sources []dataset.Source
		for _, path := range args {
			s, err := dataset.Open(path, *b.options)
			if err != nil {
				return err
			}
			defer s.Close()
			sources = append(sources, dataset.Sources(s)...)
		}
		r, err := b.run(c.Context(), sources)
		if err != nil {
			return err
		}
		r.OpenCPU = r.CPU - cpu
		r.CPU = process.CPUSeconds() - r.CPU
		r.Rate, r.MBRate = float64(r.Samples)/r.CPU, float64(r.Bytes)/1e6/r.CPU
		r.RSS, r.PeakBytes = process.ResidentBytes(), process.PeakRSS()
		return cli.Emit(c, r, r.write)
	}
	return c
}

func (r *benchReport) write(w io.Writer) {
	fmt.Fprintf(w, "%d samples, %d MB in %.2f s and %.2f s of CPU: %.0f samples and %.0f MB a CPU second\n", r.Samples, r.Bytes/1e6, r.Seconds, r.CPU, r.Rate, r.MBRate)
	fmt.Fprintf(w, "memory %d MiB, %+.3f MiB for each 100,000 samples after the first; %.2f s of CPU to find the samples\n", r.RSS>>20, r.SlopeMiB, r.OpenCPU)
	if r.Bad > 0 {
		fmt.Fprintf(w, "%d bad samples\n", r.Bad)
	}
}

// errEnough ends a pass that has read what was asked for.
var errEnough = errors.New("enough samples")

// run reads the sources, several at once. CPU holds the clock at the start.
func (b *streamBench) run(ctx context.Context, sources []dataset.Source) (*benchReport, error) {
	r := &benchReport{}
	var mu sync.Mutex
	var memory rssSlope
	next := 0
	take := func() dataset.Source {
		mu.Lock()
		defer mu.Unlock()
		if b.samples == 0 && next == len(sources) || b.samples > 0 && r.Samples >= b.samples {
			return nil
		}
		next++
		return sources[(next-1)%len(sources)]
	}
	runtime.GC()
	r.CPU = process.CPUSeconds()
	start := time.Now()
	errs := make([]error, b.readers)
	var wg sync.WaitGroup
	for k := range b.readers {
		wg.Go(func() {
			for s := take(); s != nil && errs[k] == nil; s = take() {
				errs[k] = dataset.Stream(ctx, s, 0, s.Len(), func(_ int64, d *dataset.Document, bad *dataset.BadSample) error {
					bytes, pictures := b.look(d)
					mu.Lock()
					defer mu.Unlock()
					r.add(bytes, pictures, bad != nil)
					memory.at(r.Samples)
					if r.Samples == b.samples {
						return errEnough
					}
					return nil
				})
			}
		})
	}
	wg.Wait()
	r.Seconds = time.Since(start).Seconds()
	r.SlopeMiB = memory.slope()
	for _, err := range errs {
		if err != nil && err != errEnough {
			return nil, err
		}
	}
	if r.Samples == 0 {
		return nil, exit.With(dataset.ErrNoTokens, exit.Data)
	}
	return r, nil
}

func (r *benchReport) add(bytes, pictures int64, bad bool) {
	r.Samples++
	r.Bytes += bytes
	r.Pictures += pictures
	if bad {
		r.Bad++
	}
}

// look touches every part, and decodes pictures if that is to be measured.
func (b *streamBench) look(d *dataset.Document) (bytes, pictures int64) {
	for _, p := range d.Parts {
		bytes += int64(len(p.Bytes))
		if b.side == 0 || !strings.HasSuffix(p.Name, "jpg") && !strings.HasSuffix(p.Name, "png") {
			continue
		}
		if m, err := media.Decode(p.Bytes, media.Options{}); err == nil {
			m.Resize(b.side, b.side, media.Bicubic).Release()
			m.Release()
			pictures++
		}
	}
	return bytes + int64(len(d.Text)+4*len(d.Tokens)), pictures
}

// rssSlope watches the memory of the process as samples go by.
type rssSlope struct {
	n, x, y, xx, xy float64
	last            int64
}

const (
	slopeFrom  = 100_000 // samples before the first look
	slopeEvery = 5_000
)

func (s *rssSlope) at(samples int64) {
	if samples < slopeFrom || samples < s.last+slopeEvery {
		return
	}
	s.last = samples
	x, y := float64(samples)/slopeFrom, float64(process.ResidentBytes())/(1<<20)
	s.n, s.x, s.y, s.xx, s.xy = s.n+1, s.x+x, s.y+y, s.xx+x*x, s.xy+x*y
}

// slope is that of the straight line closest to what was seen, in MiB for 100,000 samples.
func (s *rssSlope) slope() float64 {
	if s.last < 2*slopeFrom-slopeEvery {
		return 0
	}
	return (s.n*s.xy - s.x*s.y) / (s.n*s.xx - s.x*s.x)
}
