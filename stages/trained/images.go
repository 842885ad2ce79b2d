package trained

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/family"
)

// Images turns the media of batches into what a vision tower takes.
type Images struct {
	V         *family.Vision
	Processor *media.Processor
}

// Fill puts a batch's images, which the loader has prepared, into its microbatch: their tokens have no
// embedding of their own.
func (x *Images) Fill(mb *family.Microbatch, b *dataset.Batch) error {
	return x.FillFrom(mb, b, func(_ int, v any) (*media.Features, error) { return v.(*media.Features), nil })
}

// FillFrom is Fill of what features makes of medium i of a batch, as it was prepared.
func (x *Images) FillFrom(mb *family.Microbatch, b *dataset.Batch,
	features func(i int, v any) (*media.Features, error)) error {
	if len(b.Media) == 0 {
		return nil
	}
	type result struct {
		grid   family.Grid
		values []float32
		err    error
	}
	out := make([]result, len(b.Media))
	gate := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range b.Media {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			v, err := b.Media[i].Take()
			var f *media.Features
			if err == nil {
				f, err = features(i, v)
			}
			if out[i].err = err; err == nil {
				out[i].grid, out[i].values, out[i].err = x.Laid(&b.Media[i], f)
			}
		})
	}
	wg.Wait()
	ids := append([]int32(nil), mb.IDs...)
	for i := range b.Media {
		m, r := &b.Media[i], &out[i]
		if r.err != nil {
			return r.err
		}
		for _, s := range m.Spans {
			for k := s.From; k < s.To; k++ {
				ids[k] = -1
			}
			r.grid.Spans = append(r.grid.Spans, [2]int32{s.From, s.To})
		}
		mb.Images.Grids, mb.Images.Values = append(mb.Images.Grids, r.grid), append(mb.Images.Values, r.values...)
	}
	mb.IDs = ids
	return x.V.Check(&mb.Images)
}

// Prepare is the dataset.Prepare of the model: *media.Features that fit its tower and their tokens.
func (x *Images) Prepare(m *dataset.Media, n int) (any, int64, error) {
	f, err := x.decode(m, n)
	if err == nil {
		err = x.Fits(m, f)
	}
	if err != nil {
		return nil, 0, err
	}
	return f, int64(len(f.Pixels)), nil
}

// Fits holds a medium's features to its tokens.
func (x *Images) Fits(m *dataset.Media, f *media.Features) error {
	g, err := x.grid(m, f)
	if err != nil {
		return err
	}
	tokens := 0
	for _, s := range m.Spans {
		tokens += int(s.To - s.From)
	}
	if made := x.V.Features(g); made != tokens {
		return fmt.Errorf("it becomes %d features and stands as %d tokens: its header may lie, "+
			"or the processor is not the model's", made, tokens)
	}
	return nil
}

// one decodes a medium and prepares it; n is how many its sample has.
func (x *Images) one(m *dataset.Media, n int) (g family.Grid, values []float32, err error) {
	f, err := x.decode(m, n)
	if err != nil {
		return g, nil, err
	}
	return x.Laid(m, f)
}

// decode turns the bytes of an image or a video into what the encoder takes. n is the number of media of the sample.
func (x *Images) decode(m *dataset.Media, n int) (*media.Features, error) {
	switch m.Kind {
	case dataset.Image:
		p, err := media.Decode(m.Bytes, media.Options{White: true})
		if err != nil {
			return nil, err
		}
		return x.Processor.Image.Image(p, n)
	case dataset.Video:
		clip, err := media.FFmpeg{}.ClipBytes(context.Background(), m.Bytes, x.Processor.Video)
		if err != nil {
			return nil, err
		}
		return x.Processor.Video.Video(clip)
	}
	return nil, fmt.Errorf("the model takes no %s", m.Kind)
}

// grid is what the tower takes features as, without its tokens.
func (x *Images) grid(m *dataset.Media, f *media.Features) (family.Grid, error) {
	g := family.Grid{T: f.Grid[0], H: f.Grid[1], W: f.Grid[2], Every: f.Every, Video: m.Kind == dataset.Video}
	if x.V.Tile == 0 {
		if len(f.Shape) != 2 || f.Width() != x.V.Tower.PatchDim {
			return g, fmt.Errorf("the processor makes %v of it, and the model takes patches of %d numbers",
				f.Shape, x.V.Tower.PatchDim)
		}
		return g, nil
	}
	if len(f.Shape) != 4 || f.Shape[2] != x.V.Tile || f.Shape[3] != x.V.Tile {
		return g, fmt.Errorf("the processor makes %v of it, and the model takes tiles of %d pixels", f.Shape, x.V.Tile)
	}
	side := x.V.Tile / x.V.Patch
	g.T, g.H, g.W = f.Shape[0], side, side
	return g, nil
}

// Laid are features as the tower takes them.
func (x *Images) Laid(m *dataset.Media, f *media.Features) (g family.Grid, values []float32, err error) {
	if g, err = x.grid(m, f); err != nil {
		return g, nil, err
	}
	values = f.Values()
	if x.V.Tile > 0 {
		values = x.V.Cut(values, f.Shape[0])
	}
	return g, values, nil
}
