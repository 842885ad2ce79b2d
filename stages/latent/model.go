package latent

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// Model is an autoencoder's structure.
type Model struct {
	Config  Config
	In, Out int // channels of pixels that are encoded, and of those that are decoded
	Latent  int // channels z of latents
	Side    int // rows, and columns, of pixels for one of latents
	// Frames are those of a clip for each frame of latents behind the first, 0 for pictures, which have no
	// axis of frames.
	Frames int
	Scale  Scale

	encoder, decoder func(w way, name string) []Block
	// older names of parameters in files, and the names that they have here; nil for none
	older func(name string) string
}

// Block is a unit of an encoder or a decoder: one value [n (t) h w c] comes in, another goes out, and that
// is all that goes from one block to the next. A pipeline may be cut behind any of them.
type Block struct {
	Name   string // where its parameters lie, as decoder.up_blocks.1
	Record func(r *block.Rec, x *grad.Value) *grad.Value
}

// Encoder lists the blocks that make moments of pixels, one a level of resolution or finer. The names of
// their parameters begin with name and a dot; "" leaves diffusers' names as they are.
func (m *Model) Encoder(name string) []Block { return m.encoder(way{}, name) }

// Decoder lists the blocks that make pixels of latents.
func (m *Model) Decoder(name string) []Block { return m.decoder(way{}, name) }

// Encode records the encoder called name: pixels x [n (t) h w In] become moments [n (t') h' w' 2·Latent],
// the means of all channels before the logarithms of their variances, which are not clamped yet: Split does that.
func (m *Model) Encode(r *block.Rec, name string, x *grad.Value) *grad.Value {
	return run(r, m.Encoder(name), x)
}

// Decode records the decoder called name: latents z [n (t') h' w' Latent] become pixels [n (t) h w Out].
func (m *Model) Decode(r *block.Rec, name string, z *grad.Value) *grad.Value {
	return run(r, m.Decoder(name), z)
}

func run(r *block.Rec, blocks []Block, x *grad.Value) *grad.Value {
	x = r.T.Cast(x)
	for _, b := range blocks {
		x = b.Record(r, x)
	}
	return x
}

// Shapes are those of the values that go into each of the blocks, and of the last one's result, for an input
// of a shape.
func Shapes(blocks []Block, in ...int) [][]int {
	r := &block.Rec{T: grad.NewTape(grad.Options{NoGrad: true})}
	x := r.T.Data("x", tensor.F32, in...)
	shapes := [][]int{in}
	for _, b := range blocks {
		x = b.Record(r, x)
		shapes = append(shapes, x.Shape)
	}
	return shapes
}

// logVarianceLow and logVarianceHigh bound logarithms of variances, as in diffusers.
const logVarianceLow, logVarianceHigh = -30, 20

// Split takes moments [… 2z] apart into means and logarithms of variances [… z], which are clamped to -30 …
// 20 as in diffusers; the gradient is 0 outside.
func Split(r *block.Rec, moments *grad.Value) (mean, logVariance *grad.Value) {
	z := moments.Shape[len(moments.Shape)-1] / 2
	return r.T.Columns(moments, 0, z), clamped(r, r.T.Columns(moments, z, z), logVarianceLow, logVarianceHigh)
}

// Params lists all parameters with the names of files, in order of first use.
func (m *Model) Params() []*grad.Param {
	r := &block.Rec{T: grad.NewTape(grad.Options{NoGrad: true})}
	mean, _ := Split(r, m.Encode(r, "", r.T.Data("pixels", tensor.F32, m.smallest()...)))
	r.T.Output("pixels", m.Decode(r, "", mean))
	return r.T.Finish().Params
}

// smallest is the shape of the least pixels that meet every parameter.
func (m *Model) smallest() []int {
	if m.Frames == 0 {
		return []int{1, m.Side, m.Side, m.In}
	}
	return []int{1, 1 + m.Frames, m.Side, m.Side, m.In}
}

// Count is the number of parameters.
func (m *Model) Count() (n int64) {
	for _, p := range m.Params() {
		n += int64(tensor.Len(p.Shape))
	}
	return n
}

// numbersMax bounds the numbers of pixels or latents, so that a shape cannot overflow what counts its bytes.
const numbersMax = 1 << 33

// FitsPixels reports pixels [n In h w] or [n In t h w] that the encoder does not take.
func (m *Model) FitsPixels(shape []int) error {
	if err := m.fits("pixels", shape, m.In); err != nil {
		return err
	}
	for _, v := range shape[len(shape)-2:] {
		if v%m.Side != 0 {
			return fmt.Errorf("latent: pixels %v: a side of %d is no multiple of %d; take %s", shape, v,
				m.Side, around(v, m.Side, 0))
		}
	}
	if m.Frames > 0 && (shape[2]-1)%m.Frames != 0 {
		return fmt.Errorf("latent: pixels %v: %d frames are not 1 + a multiple of %d; take %s", shape,
			shape[2], m.Frames, around(shape[2], m.Frames, 1))
	}
	return nil
}

// around names the lengths next to v that are a multiple of by, and more.
func around(v, by, more int) string {
	low := (v-more)/by*by + more
	if low < 1 {
		return fmt.Sprint(low + by)
	}
	return fmt.Sprintf("%d or %d", low, low+by)
}

// FitsLatents reports latents [n Latent h w] or [n Latent t h w] that the decoder does not take.
func (m *Model) FitsLatents(shape []int) error {
	if err := m.fits("latents", shape, m.Latent); err != nil {
		return err
	}
	if n := tensor.Len(m.pixelsOf(shape)); n > numbersMax {
		return fmt.Errorf("latent: latents %v: their pixels are %d numbers, at most %d", shape, n, numbersMax)
	}
	return nil
}

// fits wants a shape of as many axes and channels, none of them 0.
func (m *Model) fits(what string, shape []int, channels int) error {
	axes := "[n c h w]"
	if m.Frames > 0 {
		axes = "[n c t h w]"
	}
	if want := len(m.smallest()); len(shape) != want {
		return fmt.Errorf("latent: %s %v have %d axes; %s has %d, %s", what, shape, len(shape),
			m.Config.Class(), want, axes)
	}
	if shape[1] != channels {
		return fmt.Errorf("latent: %s %v have %d channels; the autoencoder has %d of them", what, shape,
			shape[1], channels)
	}
	n := 1
	for _, v := range shape {
		if v < 1 || v > numbersMax/n {
			return fmt.Errorf("latent: %s %v: every axis has at least one place, and all together at most %d",
				what, shape, numbersMax)
		}
		n *= v
	}
	return nil
}

// latentsOf is the shape of latents of pixels, and pixelsOf its inverse, with channels second.
func (m *Model) latentsOf(pixels []int) []int {
	return m.scaled(pixels, m.Latent, func(n, by int) int { return n / by })
}

func (m *Model) pixelsOf(latents []int) []int {
	return m.scaled(latents, m.Out, func(n, by int) int { return n * by })
}

func (m *Model) scaled(shape []int, channels int, by func(n, by int) int) []int {
	l := slices.Clone(shape)
	l[1] = channels
	for a := len(l) - 2; a < len(l); a++ {
		l[a] = by(l[a], m.Side)
	}
	if m.Frames > 0 {
		l[2] = 1 + by(l[2]-1, m.Frames)
	}
	return l
}

// join is a parameter's name below another.
func join(name, part string) string {
	if name == "" {
		return part
	}
	return name + "." + part
}
