package setup

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/topology/machine"
)

// frames reads frames of recordings in an order that is drawn, one after another, as a policy's loader does: states,
// actions, and pictures as pixels from 0 to 1 by colours. CPU holds the clock at the start.
func (b *StreamBench) frames(ctx context.Context, sources []dataset.Source) (*StreamReport, error) {
	r, memory := &StreamReport{}, rssSlope{}
	draw := rand.New(rand.NewPCG(1, 2))
	runtime.GC()
	r.CPU = machine.CPUSeconds()
	start := time.Now()
	for again := true; again; again = r.Samples > 0 && r.Samples < b.Samples {
		for _, s := range sources {
			for _, i := range draw.Perm(int(s.Len())) {
				if r.Samples > 0 && r.Samples == b.Samples {
					break
				}
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				d, err := s.Read(int64(i))
				var bad *dataset.BadSample
				if err != nil && !errors.As(err, &bad) {
					return nil, err
				}
				bytes, images := int64(0), int64(0)
				if bad == nil {
					if bytes, images, err = frameOf(&d); err != nil {
						return nil, err
					}
				}
				r.add(bytes, images, bad != nil)
				memory.at(r.Samples)
			}
		}
	}
	r.Seconds, r.SlopeMiB = time.Since(start).Seconds(), memory.slope()
	if r.Samples == 0 {
		return nil, exit.With(dataset.ErrNoTokens, exit.Data)
	}
	return r, nil
}

// frameOf makes of a frame what a policy reads.
func frameOf(d *dataset.Document) (bytes, images int64, err error) {
	b, _ := d.Part("json")
	var f recordings.RobotFrame
	if err := json.Unmarshal(b, &f); err != nil {
		return 0, 0, err
	}
	for _, picture := range f.Images {
		m, err := media.Decode(picture, media.Options{White: true, Turn: true})
		if err != nil {
			return 0, 0, err
		}
		n := m.W * m.H
		planes := make([]float32, 3*n)
		for i := range planes {
			planes[i] = float32(m.Pix[i%n*3+i/n]) / 255
		}
		bytes, images = bytes+int64(len(picture)), images+1
		m.Release()
	}
	return bytes + int64(len(b)), images, nil
}
