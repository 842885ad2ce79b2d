package diffusion

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
	"github.com/lfactor/lfactor/stages/trained"
)

// Autoencoder makes latents of pictures and pictures of latents. Pictures are [3 T H W] from -1 to 1;
// latents [C t h w] are normalised as denoisers read them. It is used by several goroutines at once.
type Autoencoder interface {
	// Shape is that of the latents of pictures of frames, height and width; an error says which sizes it takes.
	Shape(size [3]int) (latents [4]int, err error)
	// Encode gives the mean of the latents' distribution and its standard deviation, nil for none.
	Encode(pixels []float32, size [3]int) (mean, deviation []float32, err error)
	Decode(latents []float32, shape [4]int) (pixels []float32, size [3]int, err error)
	// Fingerprint changes with whatever changes the numbers.
	Fingerprint() string
}

// Captioner makes states of captions, [rows width] as a denoiser reads them. It is used by several goroutines at once.
type Captioner interface {
	// pooled is nil for encoders without such a row.
	States(caption string) (states, pooled []float32, err error)
	// IDs are the tokens of a caption, for a model that encodes them itself.
	IDs(caption string) ([]int32, error)
	Fingerprint() string
}

// Pictures turns images, clips and captions of batches into what a denoiser takes.
type Pictures struct {
	D       *family.Denoiser
	Encoder Autoencoder
	Text    Captioner // nil for a model that reads none
	Sizes   [][3]int  // frames, height and width in pixels
	FPS     float64   // at which clips are read, 0 for every frame
	Upscale bool
	Area    int    // pixels of images that are given to be changed
	Mode    bool   // latents are the mode of what Encoder gives, and not drawn
	Seed    uint64 // of the run: random numbers are counted from it and from samples

	alike bool    // images and clips of a row are of one size
	Look  *looker // features of the images that clips begin with; nil for a model that reads none
	Cache string  // directory of what was encoded, "" for none
	notes noter
	kept  struct {
		sync.Once
		in  trained.Store
		err error
	}

	none struct {
		sync.Once
		caption *captioned
		err     error
	}
}

// encoded is a picture as it is prepared.
type encoded struct {
	shape           [4]int
	mean, deviation []float32
	frame           [6]float32 // of family.Encoded
	image           []float32  // features of the image that the clip begins with
	pixels          []float32  // in the place of latents, for a model that encodes images itself
	size            [3]int
	given           []float32 // latents of the first frame alone, behind its masks, as the model reads them
}

// captioned is a caption as it is prepared: states and a pooled row, or tokens for a model that makes them.
type captioned struct {
	States, pooled []float32
	ids            []int32
	none           *captioned // of no caption beside the same images; nil for that of no caption
}

// Tokens is the number of tokens of an image or a clip, from its header.
func (x *Pictures) Tokens(m *dataset.Media) (int, error) {
	size, err := x.size(m)
	if err != nil {
		return 0, err
	}
	shape, err := x.Encoder.Shape(size)
	if err != nil {
		return 0, err
	}
	g := x.D.Grid(shape)
	return g[0] * g[1] * g[2], nil
}

// size is the one of Sizes that a medium takes: of those with frames enough, the one nearest to its shape,
// and of these the one of most frames.
func (x *Pictures) size(m *dataset.Media) (best [3]int, err error) {
	w, h, frames, err := x.extent(m)
	if err != nil {
		return best, err
	}
	least := math.Inf(1)
	for _, s := range x.Sizes {
		if s[0] > frames || s[0] == 1 && frames > 1 || !x.Upscale && (s[1] > h || s[2] > w) {
			continue
		}
		off := math.Abs(math.Log(float64(s[1]) / float64(s[2]) * float64(w) / float64(h)))
		if off < least || off == least && s[0] > best[0] {
			best, least = s, off
		}
	}
	if x.notes.enlarged(w, h, best); best[0] == 0 {
		return best, fmt.Errorf("%d frames of %d×%d pixels fit none of diffusion.sizes", frames, h, w)
	}
	return best, nil
}

// extent is a medium's width, height and frames at FPS.
func (x *Pictures) extent(m *dataset.Media) (w, h, frames int, err error) {
	if m.Kind == dataset.Image {
		w, h, err = media.Size(m.Bytes, media.Options{Turn: true})
		return w, h, 1, err
	}
	v, err := media.FFmpeg{}.ProbeBytes(context.Background(), m.Bytes)
	if err != nil {
		return 0, 0, 0, err
	}
	at, err := every(x.FPS, 0).Pick(v)
	return v.W, v.H, len(at), err
}

// Prepare is the dataset.Prepare of the model: latents of an image, or states of a caption.
func (x *Pictures) Prepare(m *dataset.Media, _ int) (any, int64, error) {
	if m.Kind == dataset.Caption {
		if err := x.notes.caption(x.Text, string(m.Bytes)); err != nil {
			return nil, 0, err
		}
		c, err := x.Caption(string(m.Bytes))
		if err != nil {
			return nil, 0, err
		}
		return c, int64(4 * (len(c.States) + len(c.pooled) + len(c.ids))), nil
	}
	if x.D.Further > 0 && format.IsCondition(m.Key) {
		v, err := x.condition(m)
		if err != nil {
			return nil, 0, err
		}
		return v, int64(4 * len(v.mean)), nil
	}
	size, err := x.size(m)
	if err != nil {
		return nil, 0, err
	}
	shape, err := x.Encoder.Shape(size)
	if err != nil {
		return nil, 0, err
	}
	if x.D.Seen != nil {
		return x.unencoded(m, shape, size)
	}
	mean, deviation, err := x.encode(m, size)
	if err != nil {
		return nil, 0, err
	}
	if n := shape[0] * shape[1] * shape[2] * shape[3]; len(mean) != n || shape[0] != x.D.Channels {
		return nil, 0, fmt.Errorf("the autoencoder gives %d numbers in %d channels, and the model reads %d in %d",
			len(mean), shape[0], n, x.D.Channels)
	}
	for i, v := range mean {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, 0, fmt.Errorf("number %d of its latents is %g", i, v)
		}
	}
	v := &encoded{shape: shape, mean: mean, deviation: deviation}
	if x.D.Framed {
		w, h, _, err := x.extent(m)
		if err != nil {
			return nil, 0, err
		}
		v.frame = framed(w, h, size)
	}
	if x.Look != nil {
		if v.image, err = x.Looked(Digest(m.Bytes), func() (*media.Image, error) {
			return x.first(m)
		}); err != nil {
			return nil, 0, err
		}
	}
	if x.D.Given > 0 {
		if v.given, err = x.given(shape, size, "given "+Digest(m.Bytes), func() ([]float32, error) {
			return x.pixels(m, size)
		}); err != nil {
			return nil, 0, err
		}
	}
	return v, int64(4 * (len(mean) + len(deviation))), nil
}

// unencoded is what Prepare gives of an image for a model that encodes it itself.
func (x *Pictures) unencoded(m *dataset.Media, shape [4]int, size [3]int) (any, int64, error) {
	v := &encoded{shape: shape, size: size}
	var err error
	if v.pixels, err = x.pixels(m, size); err != nil {
		return nil, 0, err
	}
	if x.D.Framed {
		w, h, _, err := x.extent(m)
		if err != nil {
			return nil, 0, err
		}
		v.frame = framed(w, h, size)
	}
	return v, int64(4 * len(v.pixels)), nil
}

// Caption is what the model reads of a caption.
func (x *Pictures) Caption(caption string) (*captioned, error) {
	if x.Text == nil {
		return &captioned{}, nil
	}
	if x.D.Live != nil {
		ids, err := x.Text.IDs(caption)
		return &captioned{ids: ids}, err
	}
	key := "text " + x.Text.Fingerprint() + " " + Digest([]byte(caption))
	v, err := x.Once(key, func() ([][]float32, error) {
		s, pooled, err := x.Text.States(caption)
		return [][]float32{s, pooled}, err
	})
	if err != nil {
		return nil, err
	}
	if len(v) != 2 || len(v[0])%x.D.Texts != 0 {
		return nil, fmt.Errorf("the states of a caption are no rows of %d numbers, which the model reads: the "+
			"text encoder may be another model's", x.D.Texts)
	}
	c := &captioned{States: x.D.Padded(v[0]), pooled: v[1]}
	if x.D.Further > 0 && x.D.Process.Drop > 0 {
		images, text, err := format.SplitImages([]byte(caption))
		if c.none = c; err == nil && text != "" {
			c.none, err = x.Caption(string(format.JoinImages(images, "")))
		}
		return c, err
	}
	return c, nil
}

// encode gives a picture's latents.
func (x *Pictures) encode(m *dataset.Media, size [3]int) (mean, deviation []float32, err error) {
	if _, same := x.Encoder.(Pixels); same { // decoding an image is all there is to do
		v, err := x.pixels(m, size)
		return v, nil, err
	}
	key := fmt.Sprintf("latents %s %v %g %s", x.Encoder.Fingerprint(), size, x.FPS, Digest(m.Bytes))
	v, err := x.Once(key, func() ([][]float32, error) {
		pixels, err := x.pixels(m, size)
		if err != nil {
			return nil, err
		}
		mean, deviation, err := x.Encoder.Encode(pixels, size)
		return [][]float32{mean, deviation}, err
	})
	if err != nil {
		return nil, nil, err
	}
	if len(v) != 2 {
		return nil, nil, fmt.Errorf("what was kept of it are no latents")
	}
	return v[0], v[1], nil
}

// Once is what the store has for a key, or what make gives.
func (x *Pictures) Once(key string, make func() ([][]float32, error)) ([][]float32, error) {
	if x.Cache == "" {
		return make()
	}
	x.kept.Do(func() { x.kept.in, x.kept.err = trained.OpenFolder(x.Cache) })
	if x.kept.err != nil {
		return nil, x.kept.err
	}
	v, err := x.kept.in.Get(key)
	if err != nil || v != nil {
		return v, err
	}
	if v, err = make(); err != nil {
		return nil, err
	}
	return v, x.kept.in.Put(key, v...)
}

// pixels are a medium's frames, scaled to cover a size and cut in the middle, [3 T H W] from -1 to 1.
func (x *Pictures) pixels(m *dataset.Media, size [3]int) ([]float32, error) {
	var frames []*media.Image
	if m.Kind == dataset.Image {
		p, err := media.Decode(m.Bytes, media.Options{White: true, Turn: true})
		if err != nil {
			return nil, err
		}
		frames = []*media.Image{p}
	} else {
		clip, err := media.FFmpeg{}.ClipBytes(context.Background(), m.Bytes, every(x.FPS, size[0]))
		if err != nil {
			return nil, err
		}
		frames = clip.Frames
	}
	if len(frames) != size[0] {
		return nil, fmt.Errorf("it has %d frames, and its table says %d or more", len(frames), size[0])
	}
	for t, p := range frames {
		frames[t] = covering(p, size[2], size[1])
	}
	return Planes(frames, size), nil
}

// Planes are frames of a size as [3 T H W] from -1 to 1.
func Planes(frames []*media.Image, size [3]int) []float32 {
	out := make([]float32, 3*size[0]*size[1]*size[2])
	for t, p := range frames {
		for i, v := range p.Pix {
			at, c := i/3, i%3
			out[(c*size[0]+t)*size[1]*size[2]+at] = float32(v)/127.5 - 1
		}
	}
	return out
}

// framed are the numbers of family.Encoded.Frame of a picture that covering brings to a size.
func framed(w, h int, size [3]int) [6]float32 {
	sw, sh := scaled(w, h, size[2], size[1])
	return [6]float32{float32(h), float32(w), float32((sh - size[1]) / 2), float32((sw - size[2]) / 2),
		float32(size[1]), float32(size[2])}
}

// scaled is the width and the height of a picture that just covers w by h pixels.
func scaled(pw, ph, w, h int) (sw, sh int) {
	by := max(float64(w)/float64(pw), float64(h)/float64(ph))
	return max(w, int(math.Round(float64(pw)*by))), max(h, int(math.Round(float64(ph)*by)))
}

// covering scales an image to cover w by h pixels and cuts what is over in the middle.
func covering(p *media.Image, w, h int) *media.Image {
	sw, sh := scaled(p.W, p.H, w, h)
	if sw != p.W || sh != p.H {
		p = p.Resize(sw, sh, media.Lanczos)
	}
	if sw == w && sh == h {
		return p
	}
	out := media.NewImage(w, h)
	left, top := (sw-w)/2, (sh-h)/2
	for y := range h {
		copy(out.Pix[3*y*w:3*(y+1)*w], p.Pix[3*((top+y)*sw+left):])
	}
	return out
}

// Fill puts a batch's latents and captions, which the loader has prepared, into its microbatch.
func (x *Pictures) Fill(mb *family.Microbatch, b *dataset.Batch) error {
	var items []family.Encoded
	empty, err := x.empty()
	if err != nil {
		return err
	}
	for i := range b.Media {
		m := &b.Media[i]
		v, err := m.Take()
		if err != nil {
			return err
		}
		switch v := v.(type) {
		case *encoded:
			if x.D.Further > 0 && format.IsCondition(m.Key) {
				x.behind(&items[len(items)-1], v)
				continue
			}
			segment, _ := slices.BinarySearch(b.CuSeqlens, m.Spans[0].From+1)
			e := family.Encoded{From: m.Spans[0].From, Grid: x.D.Grid(v.shape),
				Key: dataset.Draw(x.Seed, 0, b.SampleIDs[segment-1], 0, 0)}
			if e.Frame, e.Pixels, e.Size = v.frame, v.pixels, v.size; v.pixels == nil {
				e.X0 = x.D.Tokens(v.shape, x.drawn(v, e.Key))
			}
			e.Image = v.image
			if v.given != nil {
				e.Given = x.D.Tokens(x.givenShape(v.shape), v.given)
			}
			if e.Grid[0] > 1 && x.D.GivesFirst(e.Key) {
				e.Clean = 1
			}
			items = append(items, e)
		case *captioned:
			x.describe(&items[len(items)-1], v, empty)
		}
	}
	if err := x.D.Check(items, len(mb.IDs)); err != nil {
		return err
	}
	mb.More = family.EncodedKey.With(mb.More, items)
	return nil
}

// describe gives a picture its caption; a model that encodes captions itself gets no caption's tokens
// where the sample loses its own.
func (x *Pictures) describe(e *family.Encoded, c, empty *captioned) {
	e.Text, e.Pool, e.IDs = c.States, c.pooled, c.ids
	if c.none != nil {
		empty = c.none
	}
	e.None, e.NonePool = empty.States, empty.pooled
	if x.D.Live != nil && x.D.Loses(e) {
		e.IDs = empty.ids
	}
}

// drawn are latents by their distribution and a sample's key.
func (x *Pictures) drawn(v *encoded, key uint64) []float32 {
	if x.Mode || len(v.deviation) == 0 {
		return v.mean
	}
	out, k := make([]float32, len(v.mean)), noise.Key{Sample: key, Draw: family.DrawPosterior}
	k.Fill(out, 0)
	for i, e := range out {
		out[i] = v.mean[i] + float32(v.deviation[i]*e) // rounded as the product is where blocks draw
	}
	return out
}

// empty are the states of no caption.
func (x *Pictures) empty() (*captioned, error) {
	if x.D.Further > 0 { // every sample has its own, beside its images
		return &captioned{}, nil
	}
	x.none.Do(func() { x.none.caption, x.none.err = x.Caption("") })
	return x.none.caption, x.none.err
}
