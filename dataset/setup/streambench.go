package setup

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/topology/machine"
)

// StreamBench reads data as fast as it can be read.
type StreamBench struct {
	Samples int64 // 0: each once
	Readers int
	Side    int // of a square that images are brought to; 0: files are not decoded
	Options dataset.Options
}

// StreamReport is what was measured.
type StreamReport struct {
	Samples   int64   `json:"samples"`
	Bad       int64   `json:"bad"`
	Bytes     int64   `json:"bytes"`
	Images    int64   `json:"images,omitempty"` // decoded
	Seconds   float64 `json:"seconds"`
	CPU       float64 `json:"cpu_seconds"`
	Rate      float64 `json:"samples_per_cpu_second"`
	MBRate    float64 `json:"mb_per_cpu_second"`
	OpenCPU   float64 `json:"open_cpu_seconds"` // to find the samples, once; not in cpu_seconds
	RSS       int64   `json:"rss_bytes"`
	SlopeMiB  float64 `json:"rss_slope_mib_per_100k"` // after the first 100,000 samples; 0 where there are fewer than 200,000
	PeakBytes int64   `json:"peak_rss_bytes"`
}

// Run opens paths and reads them as fast as they can be read.
func (b *StreamBench) Run(ctx context.Context, paths []string) (*StreamReport, error) {
	cpu := machine.CPUSeconds()
	var sources []dataset.Source
	for _, path := range paths {
		s, err := dataset.Open(path, b.Options)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		sources = append(sources, dataset.Sources(s)...)
	}
	run := b.run
	if b.Options.Horizon > 0 {
		run = b.frames
	}
	r, err := run(ctx, sources)
	if err != nil {
		return nil, err
	}
	r.OpenCPU = r.CPU - cpu
	r.CPU = machine.CPUSeconds() - r.CPU
	r.Rate, r.MBRate = float64(r.Samples)/r.CPU, float64(r.Bytes)/1e6/r.CPU
	r.RSS, r.PeakBytes = machine.ResidentBytes(), machine.PeakRSS()
	return r, nil
}

// errEnough ends a pass that has read what was asked for.
var errEnough = errors.New("enough samples")

// run reads the sources, several at once. CPU holds the clock at the start.
func (b *StreamBench) run(ctx context.Context, sources []dataset.Source) (*StreamReport, error) {
	r := &StreamReport{}
	var mu sync.Mutex
	var memory rssSlope
	next := 0
	take := func() dataset.Source {
		mu.Lock()
		defer mu.Unlock()
		if b.Samples == 0 && next == len(sources) || b.Samples > 0 && r.Samples >= b.Samples {
			return nil
		}
		next++
		return sources[(next-1)%len(sources)]
	}
	runtime.GC()
	r.CPU = machine.CPUSeconds()
	start := time.Now()
	errs := make([]error, b.Readers)
	var wg sync.WaitGroup
	for k := range b.Readers {
		wg.Go(func() {
			for s := take(); s != nil && errs[k] == nil; s = take() {
				errs[k] = dataset.Stream(ctx, s, 0, s.Len(), func(_ int64, d *dataset.Document,
					bad *dataset.BadSample) error {
					bytes, images := b.look(d)
					mu.Lock()
					defer mu.Unlock()
					r.add(bytes, images, bad != nil)
					memory.at(r.Samples)
					if r.Samples == b.Samples {
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

func (r *StreamReport) add(bytes, images int64, bad bool) {
	r.Samples++
	r.Bytes += bytes
	r.Images += images
	if bad {
		r.Bad++
	}
}

// look touches every part, and decodes images if that is to be measured.
func (b *StreamBench) look(d *dataset.Document) (bytes, images int64) {
	for _, p := range d.Parts {
		bytes += int64(len(p.Bytes))
		if b.Side == 0 || !strings.HasSuffix(p.Name, "jpg") && !strings.HasSuffix(p.Name, "png") {
			continue
		}
		if m, err := media.Decode(p.Bytes, media.Options{}); err == nil {
			m.Resize(b.Side, b.Side, media.Bicubic).Release()
			m.Release()
			images++
		}
	}
	return bytes + int64(len(d.Text)+4*len(d.Tokens)), images
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

// at takes a sample of the memory in use for a line through all of them, whose slope shows a leak.
func (s *rssSlope) at(samples int64) {
	if samples < slopeFrom || samples < s.last+slopeEvery {
		return
	}
	s.last = samples
	x, y := float64(samples)/slopeFrom, float64(machine.ResidentBytes())/(1<<20)
	s.n, s.x, s.y, s.xx, s.xy = s.n+1, s.x+x, s.y+y, s.xx+x*x, s.xy+x*y
}

// slope is that of the straight line closest to what was seen, in MiB for 100,000 samples.
func (s *rssSlope) slope() float64 {
	if s.last < 2*slopeFrom-slopeEvery {
		return 0
	}
	return (s.n*s.xy - s.x*s.y) / (s.n*s.xx - s.x*s.x)
}
