package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/family"
)

// pictures turns the media of batches into what a vision tower takes.
type pictures struct {
	v *family.Vision
	p *media.Processor
}

// openPictures loads the processor that data.processor names, or that lies beside the tokenizer.
func (d *data) openPictures() error {
	c := d.r.cfg.Run
	v := d.r.job.Model.Vision
	if v == nil {
		return d.r.cfg.Fault("data.kind", "media samples need a model with a vision encoder", "take a composed model, such as qwen-vl/2.5-3b")
	}
	dir := c.Data.Processor
	for _, other := range []string{c.Data.Tokenizer, c.Model.Path} {
		if dir == "" && other != "" && fileExists(filepath.Join(other, "preprocessor_config.json")) {
			dir = other
		}
	}
	if dir == "" {
		return d.r.cfg.Fault("data.processor", "is not given, and no preprocessor_config.json lies beside the tokenizer or the model", "name the directory that has it")
	}
	p, err := media.Load(dir)
	if err != nil {
		return d.r.cfg.Fault("data.processor", err.Error(), "")
	}
	d.pictures = &pictures{v, p}
	return nil
}

// samples is the encoder of media samples: the chat template's text with as many picture tokens as the processor says.
func (d *data) samples() (dataset.SampleEncoder, error) {
	c := d.r.cfg.Run
	chat, err := d.chat()
	if err != nil {
		return nil, err
	}
	x, err := format.NewProcessorExpander(d.pictures.p, d.r.tok)
	if err != nil {
		return nil, d.r.cfg.Fault("data.tokenizer", err.Error(), "")
	}
	return &format.VisionEncoder{SampleType: c.Data.SampleType, Chat: chat, Expander: x, MediaMax: c.Data.ImagesMax}, nil
}

// fill puts a batch's pictures into its microbatch: their tokens have no embedding of their own. A picture that cannot be
// decoded takes its sample out of the loss; bad names it.
func (x *pictures) fill(mb *host.Microbatch, b *dataset.Batch, bad func(m *dataset.Media, sample int64, err error) error) error {
	if len(b.Media) == 0 {
		return nil
	}
	type result struct {
		grid   family.Grid
		values []float32
		err    error
	}
	out := make([]result, len(b.Media))
	n := b.MediaOfSegments()
	gate := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range b.Media {
		wg.Add(1)
		gate <- struct{}{}
		go func() {
			defer wg.Done()
			defer func() { <-gate }()
			out[i].grid, out[i].values, out[i].err = x.one(&b.Media[i], n[i])
		}()
	}
	wg.Wait()
	ids := append([]int32(nil), mb.IDs...)
	targets := append([]int32(nil), mb.Targets...)
	for i := range b.Media {
		m, r := &b.Media[i], &out[i]
		for _, s := range m.Spans {
			for k := s.From; k < s.To; k++ {
				ids[k] = -1
			}
			r.grid.Spans = append(r.grid.Spans, [2]int32{s.From, s.To})
		}
		if r.err == nil {
			mb.Pictures.Grids, mb.Pictures.Values = append(mb.Pictures.Grids, r.grid), append(mb.Pictures.Values, r.values...)
			continue
		}
		sample := int64(-1)
		for s := range b.SampleIDs {
			if from, to := b.CuSeqlens[s], b.CuSeqlens[s+1]; len(m.Spans) > 0 && m.Spans[0].From >= from && m.Spans[0].From < to {
				sample = b.SampleIDs[s]
				for k := from; k < to; k++ {
					targets[k], mb.Weights[k] = dataset.IgnoreLabel, 0
				}
			}
		}
		if err := bad(m, sample, r.err); err != nil {
			return err
		}
	}
	mb.IDs, mb.Targets = ids, targets
	return x.v.Check(&mb.Pictures)
}

// one decodes a medium and prepares it; n is how many its sample has.
func (x *pictures) one(m *dataset.Media, n int) (g family.Grid, values []float32, err error) {
	var f *media.Features
	switch m.Kind {
	case dataset.Image:
		var p *media.Picture
		if p, err = media.Decode(m.Bytes, media.Options{White: true}); err == nil {
			f, err = x.p.Image.Image(p, n)
		}
	case dataset.Video:
		var clip *media.Clip
		if clip, err = (media.FFmpeg{}).ClipBytes(context.Background(), m.Bytes, x.p.Video); err == nil {
			f, err = x.p.Video.Video(clip)
			g.Video = true
		}
	default:
		err = fmt.Errorf("the model takes no %s", m.Kind)
	}
	if err != nil {
		return g, nil, err
	}
	g.T, g.H, g.W = f.Grid[0], f.Grid[1], f.Grid[2]
	g.Every = f.Every
	values = f.Values()
	if x.v.Tile > 0 {
		if len(f.Shape) != 4 || f.Shape[2] != x.v.Tile || f.Shape[3] != x.v.Tile {
			return g, nil, fmt.Errorf("the processor makes %v of it, and the model takes tiles of %d pixels", f.Shape, x.v.Tile)
		}
		side := x.v.Tile / x.v.Patch
		g.T, g.H, g.W, values = f.Shape[0], side, side, x.v.Cut(values, f.Shape[0])
	}
	return g, values, nil
}
