package trained

import (
	"context"
	"fmt"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/family"
)

// ImageProcessor puts images into prompts of a model that sees, as its processor wants them. It may be used by several
// goroutines at once.
type ImageProcessor struct {
	x    *format.ProcessorExpander
	p    *Images
	mark int32
}

// ImageProcessor is that of the model, whose processor lies in dir, or where its tokenizer lies.
func (m *Trained) ImageProcessor(dir string) (*ImageProcessor, error) {
	switch {
	case m.Model.Vision == nil:
		return nil, fmt.Errorf("a model of family %s does not see", m.Model.Family)
	case dir != "":
	case m.Cfg != nil && m.Cfg.Run.Data.Tokenizer != "":
		dir = m.Cfg.Run.Data.Tokenizer
	case m.Cfg != nil:
		dir = m.Cfg.Run.Model.Path
	default:
		dir = m.Dir
	}
	return m.imageProcessorOf(dir)
}

func (m *Trained) imageProcessorOf(dir string) (*ImageProcessor, error) {
	p, err := media.Load(dir)
	if err != nil {
		return nil, err
	}
	marks := token.Marked{Tokenizer: m.Tokenizer}
	marks.Image, _ = m.Tokenizer.Token(int32(m.Model.Config.Vision.ImageToken)) // none: the tokenizer's names
	x, err := format.NewProcessorExpander(p, marks)
	if err != nil {
		return nil, err
	}
	l := &ImageProcessor{x: x, p: &Images{m.Model.Vision, p}}
	l.mark, _ = x.Mark(dataset.Image)
	return l, nil
}

// Read puts images, encoded files, where a prompt has marks of them, in order. Without images marks stay
// what they are. It ends between images when the context does.
func (l *ImageProcessor) Read(ctx context.Context, prompt []int32, images [][]byte) (ids []int32, pics *family.Images,
	err error) {
	pics = &family.Images{}
	if len(images) == 0 {
		return prompt, pics, nil
	}
	n := 0
	for _, id := range prompt {
		if id != l.mark {
			ids = append(ids, id)
			continue
		}
		if n++; n > len(images) {
			return nil, nil, fmt.Errorf("the prompt has more than %d places for images, and there are so many", len(images))
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		m := dataset.Media{Kind: dataset.Image, Key: fmt.Sprintf("image %d", n), Bytes: images[n-1]}
		in, fill, err := l.x.Expand(&m, len(images))
		if err != nil {
			return nil, nil, fmt.Errorf("image %d: %w", n, err)
		}
		g, values, err := l.p.one(&m, len(images))
		if err != nil {
			return nil, nil, fmt.Errorf("image %d: %w", n, err)
		}
		for _, s := range fill {
			g.Spans = append(g.Spans, [2]int32{int32(len(ids)) + s.From, int32(len(ids)) + s.To})
		}
		pics.Grids, pics.Values = append(pics.Grids, g), append(pics.Values, values...)
		ids = append(ids, in...)
	}
	if n < len(images) {
		return nil, nil, fmt.Errorf("the prompt has places for %d of %d images", n, len(images))
	}
	return ids, pics, nil
}
