package diffusion

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/texts"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// What a model that changes images reads of them, as QwenImageEditPlusPipeline of diffusers has it: clean
// latents behind those that are drawn, and their features among the caption's tokens.

// sightArea is the number of pixels of an image that the encoder of captions sees, about.
const sightArea = 384 * 384

// bounded is the width and height of an image of a shape with so many pixels, in multiples of 32, as Python rounds.
func bounded(w, h, area int) (int, int) {
	width := math.Sqrt(float64(area) * (float64(w) / float64(h)))
	height := width / (float64(w) / float64(h))
	side := func(v float64) int { return max(32, 32*int(math.RoundToEven(v/32))) }
	return side(width), side(height)
}

// conditionSize is the size that an image which is given is brought to.
func (x *Pictures) conditionSize(m *dataset.Media) ([3]int, error) {
	w, h, err := media.Size(m.Bytes, media.Options{Turn: true})
	if err != nil {
		return [3]int{}, err
	}
	w, h = bounded(w, h, x.Area)
	return [3]int{1, h, w}, nil
}

// conditionTokens is the number of tokens of an image that is given, from its header.
func (x *Pictures) conditionTokens(m *dataset.Media) (int, error) {
	size, err := x.conditionSize(m)
	if err != nil {
		return 0, err
	}
	shape, err := x.Encoder.Shape(size)
	g := x.D.Grid(shape)
	return g[0] * g[1] * g[2], err
}

// condition makes latents of an image that is given.
func (x *Pictures) condition(m *dataset.Media) (*encoded, error) {
	size, err := x.conditionSize(m)
	if err != nil {
		return nil, err
	}
	shape, err := x.Encoder.Shape(size)
	if err != nil {
		return nil, err
	}
	v, err := x.Once(fmt.Sprintf("condition %s %v %s", x.Encoder.Fingerprint(), size, Digest(m.Bytes)),
		func() ([][]float32, error) {
			p, err := media.Decode(m.Bytes, media.Options{White: true, Turn: true})
			if err != nil {
				return nil, err
			}
			p = p.Resize(size[2], size[1], media.Lanczos)
			mean, _, err := x.Encoder.Encode(Planes([]*media.Image{p}, size), size)
			return [][]float32{mean}, err
		})
	if err != nil {
		return nil, err
	}
	if n := shape[0] * shape[1] * shape[2] * shape[3]; len(v) != 1 || len(v[0]) != n || shape[0] != x.D.Channels {
		return nil, fmt.Errorf("its latents are no %v, and the model reads %d channels", shape, x.D.Channels)
	}
	return &encoded{shape: shape, mean: v[0]}, nil
}

// behind puts an image that is given behind those that a sample has.
func (x *Pictures) behind(e *family.Encoded, v *encoded) {
	e.With = append(e.With, x.D.Grid(v.shape))
	e.X0 = append(e.X0, x.D.Tokens(v.shape, v.mean)...)
}

// sight is what the encoder of captions makes of images: by the processor beside it.
func (p *captionPart) sight() (*trained.Images, error) {
	v := p.decoder.Vision
	if v == nil {
		return nil, fmt.Errorf("%s: the encoder of captions does not see, and captions of changes speak of images",
			p.dir)
	}
	dir := filepath.Join(filepath.Dir(filepath.Clean(p.dir)), "processor")
	if machine.Exists(filepath.Join(p.dir, "preprocessor_config.json")) {
		dir = p.dir
	}
	processor, err := media.LoadFor(dir, v.Patch, v.Merge)
	if err != nil {
		return nil, err
	}
	return &trained.Images{V: v, Processor: processor}, nil
}

// changes are the states of a caption with images before it.
func (p *captionPart) changes(joined string) ([]float32, error) {
	images, caption, err := format.SplitImages([]byte(joined))
	if err != nil {
		return nil, err
	}
	var before strings.Builder
	for i := range images {
		before.WriteString(texts.Picture(i))
	}
	list, err := p.template.Tokens(p.tok, before.String()+caption)
	if err != nil {
		return nil, err
	}
	pad, ok := p.tok.TokenID(texts.PicturePad)
	if !ok {
		return nil, fmt.Errorf("the tokenizer in %s has no token %s", p.dir, texts.PicturePad)
	}
	var ids []int32
	var pics family.Images
	next := 0
	for _, id := range list {
		if id != pad {
			ids = append(ids, id)
			continue
		}
		if next == len(images) {
			return nil, fmt.Errorf("the caption itself has the token %s", texts.PicturePad)
		}
		g, values, err := p.seen(images[next])
		if err != nil {
			return nil, fmt.Errorf("image %d: %w", next+1, err)
		}
		n := p.look.V.Features(g)
		g.Spans = [][2]int32{{int32(len(ids)), int32(len(ids) + n)}}
		for range n {
			ids = append(ids, pad)
		}
		pics.Grids, pics.Values, next = append(pics.Grids, g), append(pics.Values, values...), next+1
	}
	return p.decoder.With(ids, pics)
}

// seen is what the encoder's tower takes of an image.
func (p *captionPart) seen(b []byte) (g family.Grid, values []float32, err error) {
	img, err := media.Decode(b, media.Options{White: true, Turn: true})
	if err != nil {
		return g, nil, err
	}
	w, h := bounded(img.W, img.H, sightArea)
	f, err := p.look.Processor.Image.Image(img.Resize(w, h, media.Lanczos), 1)
	if err != nil {
		return g, nil, err
	}
	return p.look.Laid(&dataset.Media{Kind: dataset.Image}, f)
}

// changed prepares the images that are to be changed for drawing.
func (p *painter) changed() error {
	if n := len(p.o.Images); n == 0 || n > p.x.D.Further {
		return exit.Usagef("the model changes 1 to %d images, and --image names %d", p.x.D.Further, n)
	}
	for _, b := range p.o.Images {
		v, err := p.x.condition(&dataset.Media{Kind: dataset.Image, Bytes: b})
		if err != nil {
			return err
		}
		p.with = append(p.with, v)
	}
	return nil
}

// text is what the model reads of a caption, with the images that it speaks of.
func (p *painter) text(caption string) (*captioned, error) {
	if p.x.D.Further > 0 {
		caption = string(format.JoinImages(p.o.Images, caption))
	}
	return p.x.Caption(caption)
}
