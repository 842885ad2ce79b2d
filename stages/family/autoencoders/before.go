package autoencoders

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/latent"
	"github.com/lfactor/lfactor/stages/noise"
)

// Component is an autoencoder's encoder before a denoiser, frozen. The names of its parameters, ports and
// data begin with it.
const Component = "vae"

// LatentsPort is what it gives: clean latents of all images one after another, [images·tokens Width].
const LatentsPort = Component + ".latents"

// Names of data and dimensions of the modality.
const (
	pixelData = Component + ".pixels" // [images (t) h w channels]
	noiseData = Component + ".noise"  // [images (t') h' w' z]
	takeData  = Component + ".take"   // [rows], the token of each row, -1 for none
	sizeDim   = Component + ".size"   // which of the run's sizes, from 1
)

// Before puts the blocks of an autoencoder's encoder before those of a denoiser, which then reads latents that
// they make of pixels (family.Encoded.Pixels) in the place of ones that were made beforehand: the encoder is a
// component like any other, that a plan may cut and place. It computes in float32, does not learn, and gives
// the bits of latent.Frozen. Sizes are those of the run, in frames, height and width. A clip is encoded so many
// frames of latents at a time, by one block; 0 has all of them at once, by the encoder's own blocks.
func Before(m *family.Model, a *latent.Model, sizes [][3]int, frames int) error {
	d := m.Denoiser
	if len(sizes) == 0 || len(sizes) > sizesMax {
		return fmt.Errorf("%d sizes, want 1 to %d", len(sizes), sizesMax)
	}
	if a.Latent != d.Channels {
		return fmt.Errorf("it has latents of %d channels, and the model reads %d", a.Latent, d.Channels)
	}
	for _, size := range sizes {
		if _, err := a.LatentShape(size); err != nil {
			return err
		}
	}
	s := &seeing{autoencoder: &autoencoder{m: a, d: d}, sizes: sizes, frames: frames}
	s.least = extent{1, 1 + a.Frames, a.Side, a.Side}
	s.at = s.pixels
	readers, err := readers(m)
	if err != nil {
		return err
	}
	for _, i := range readers {
		s.reads(&m.Blocks[i])
	}
	s.names(m)
	m.Blocks = append(s.encoder(m), m.Blocks...)
	m.Modalities = append(m.Modalities, s)
	d.Seen = &family.Seen{Channels: a.In, Sizes: sizes}
	return nil
}

// sizesMax bounds the sizes of a run whose model encodes images.
const sizesMax = 63

// seeing is an encoder before a denoiser.
type seeing struct {
	*autoencoder
	sizes  [][3]int
	frames int // of latents at a time, 0 for all
}

// readers are the blocks that read clean latents, found by what a record of each reads.
func readers(m *family.Model) (list []int, err error) {
	var cuts []int
	for i := range len(m.Blocks) + 1 {
		cuts = append(cuts, i)
	}
	for i, st := range m.Cut(cuts) {
		tr := m.Record(grad.Options{NoGrad: true}, block.Rec{Shape: m.Smallest(1)}, st)
		if slices.Contains(tr.Data, family.X0) {
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no block of %s reads latents", m.Family)
	}
	return list, nil
}

// reads lets a block find latents at a port where it reads data. A record for sampling, which knows noisy
// latents alone, has data as before.
func (s *seeing) reads(b *family.Block) {
	record := b.Record
	b.Takes = append(slices.Clone(b.Takes), LatentsPort)
	b.Record = func(r *block.Rec, env map[string]*grad.Value) {
		if x := env[LatentsPort]; x != nil {
			if !s.d.Canvas {
				x = r.T.Take(x, r.T.Data(takeData, tensor.I32, s.d.Rows(r.Shape)))
			}
			defer r.T.Instead(family.X0, x)()
		}
		record(r, env)
	}
}

// names says where parameters lie: in the autoencoder's own file, by diffusers' names or the older ones.
func (s *seeing) names(m *family.Model) {
	own := m.Source
	of := func(file func(name string) string) func(name string) family.Source {
		return func(name string) family.Source {
			if rest, ok := strings.CutPrefix(name, Component+"."); ok {
				return family.Source{Name: file(rest)}
			}
			return own(name)
		}
	}
	m.Source = of(func(name string) string { return name })
	m.Parts = append(m.Parts, family.Part{Component: Component, Prefix: Component + "."})
	if m.Alone == nil {
		m.Alone = map[string][]func(string) family.Source{}
	}
	m.Alone[Component] = append(m.Alone[Component], m.Source, of(latent.Older))
	if len(m.Alone[family.Foundation]) == 0 {
		m.Alone[family.Foundation] = append(m.Alone[family.Foundation], own)
	}
}

// encoder are the blocks, of which each hands its values to the next, and the last gives latents.
func (s *seeing) encoder(m *family.Model) (list []family.Block) {
	s.blocks = s.m.Encoder(Component)
	if s.frames > 0 {
		s.blocks = []latent.Block{s.m.EncoderBy(Component, s.frames)}
	}
	s.shapes = latent.Shapes(s.blocks, s.shape(s.least, false)...)
	tokens := float64(s.least.each()) / float64(tensor.Len(s.shapes[len(s.blocks)][:4])) // pixels of a token
	for _, p := range s.d.Patch {
		tokens *= float64(p)
	}
	hidden := float64(m.Config.Hidden)
	for i, of := range s.blocks {
		from, to, last := fmt.Sprintf("%s.%d", Component, i-1), fmt.Sprintf("%s.%d", Component, i), i == len(s.blocks)-1
		b := family.Block{Name: of.Name, Component: Component, Recompute: i > 0, Gives: []string{to},
			Weight: s.work(i) * 1000 * tokens / max(1, 8*hidden*hidden)}
		if i > 0 {
			b.Takes = []string{from}
		}
		if last {
			b.Gives = []string{LatentsPort}
			m.Ports[LatentsPort] = family.Port{Width: s.d.Width(), Whole: true, Wide: true, Rows: s.rows}
		} else {
			m.Ports[to] = s.port(s.shapes[i+1])
		}
		b.Record = func(r *block.Rec, env map[string]*grad.Value) { s.record(r, env, i, from, to) }
		list = append(list, b)
	}
	return list
}

// record records block i, without adapters, whatever their targets are called. A record for sampling has no pixels.
func (s *seeing) record(r *block.Rec, env map[string]*grad.Value, i int, from, to string) {
	if r.Logits {
		return
	}
	defer r.T.SharesLines(grad.TP)()
	own := *r
	own.Lora = nil
	n, space := s.space(r.Shape, s.shapes[i])
	var x *grad.Value
	if i == 0 {
		x = cut(r, r.T.Cast(r.T.Data(pixelData, tensor.F32, slices.Concat([]int{n}, space, []int{s.m.In})...)))
	} else {
		x = cut(r, spread(r, env[from], n, space))
	}
	y := s.blocks[i].Record(&own, x)
	if i < len(s.blocks)-1 {
		env[to] = rows(r, y)
		return
	}
	env[LatentsPort] = r.T.Place("", s.tokens(&own, s.drawn(&own, y)))
}

// drawn are scaled latents [n (t) h w z] of moments: drawn by the samples' keys, or the mode.
func (s *seeing) drawn(r *block.Rec, moments *grad.Value) *grad.Value {
	t := r.T
	mean, deviation := s.m.Scaled(r, moments)
	if s.d.Process.Mode {
		return mean
	}
	return t.Add(mean, t.Mul(deviation, t.Data(noiseData, tensor.F32, mean.Shape...)))
}

// tokens are latents as rows of tokens, [n·tokens Width]: of a token, the channel varies slowest.
func (s *seeing) tokens(r *block.Rec, z *grad.Value) *grad.Value {
	p, c := s.d.Patch, channels(z)
	n, t, h, w := z.Shape[0], 1, z.Shape[len(z.Shape)-3], z.Shape[len(z.Shape)-2]
	if len(z.Shape) == 5 {
		t = z.Shape[1]
	}
	rows := n * t * h * w / (p[0] * p[1] * p[2])
	if p == [3]int{1, 1, 1} {
		return r.T.View(z, rows, c)
	}
	z = r.T.View(z, n*t/p[0], p[0], h/p[1], p[1], w/p[2], p[2], c)
	return r.T.View(r.T.Permute(z, 0, 2, 4, 6, 1, 3, 5), rows, s.d.Width())
}

// channels is the width of a value's last axis.
func channels(x *grad.Value) int { return x.Shape[len(x.Shape)-1] }

// rows is the number of tokens of all images of a shape.
func (s *seeing) rows(sh block.Shape) int {
	e := s.extent(sh)
	l, err := s.m.LatentShape([3]int{e.frames, e.h, e.w})
	if err != nil {
		panic("autoencoders: a size that was checked: " + err.Error())
	}
	g := s.d.Grid(l)
	return e.n * g[0] * g[1] * g[2]
}

// pixels is the extent of the images of a shape.
func (s *seeing) pixels(sh block.Shape) extent {
	n := s.d.Samples(sh)
	if s.d.Canvas {
		h, w := family.Canvas(sh)
		return extent{n, 1, h * s.m.Side, w * s.m.Side}
	}
	size := s.sizes[max(1, sh.Dim(sizeDim))-1]
	return extent{n, size[0], size[1], size[2]}
}

// Classes implements family.Modality: a size of the run's. Images that are read whole say it themselves.
func (s *seeing) Classes() int32 {
	if s.d.Canvas {
		return 1
	}
	return int32(len(s.sizes)) + 1
}

// Class is never 0, but of images that are read whole: every microbatch runs the encoder.
func (s *seeing) Class(in *family.Inputs) int32 {
	if s.d.Canvas {
		return 0
	}
	items := family.EncodedKey.Of(in.More)
	if len(items) == 0 || items[0].Pixels == nil {
		return 1
	}
	return int32(slices.Index(s.sizes, items[0].Size)) + 1
}

// Dims implements family.Modality.
func (s *seeing) Dims(_ int, class int32) map[string]int { return map[string]int{sizeDim: int(class)} }

// Planned is the largest size.
func (s *seeing) Planned(int, map[string]int) int32 {
	if s.d.Canvas {
		return 0
	}
	best := 0
	for i, size := range s.sizes {
		if size[0]*size[1]*size[2] > s.sizes[best][0]*s.sizes[best][1]*s.sizes[best][2] {
			best = i
		}
	}
	return int32(best) + 1
}

// Tensors implements family.Modality.
func (s *seeing) Tensors(in *family.Inputs, sh block.Shape) map[string]*tensor.Tensor {
	items := family.EncodedKey.Of(in.More)
	if len(items) > 0 && items[0].Pixels == nil {
		return nil // of latents that are noisy already
	}
	e := s.extent(sh)
	l, err := s.m.LatentShape([3]int{e.frames, e.h, e.w})
	if err != nil {
		panic("autoencoders: a size that was checked: " + err.Error())
	}
	space, small := []int{e.h, e.w}, []int{l[2], l[3]}
	if s.m.Frames > 0 {
		space, small = []int{e.frames, e.h, e.w}, l[1:]
	}
	all := func(space []int, c int) *tensor.Tensor {
		return tensor.Make(tensor.F32, slices.Concat([]int{e.n}, space, []int{c})...)
	}
	x, eps := all(space, s.m.In), all(small, s.m.Latent)
	take := tensor.Make(tensor.I32, s.d.Rows(sh))
	for i := range take.I32() {
		take.I32()[i] = -1
	}
	z := make([]float32, l[0]*l[1]*l[2]*l[3])
	for i := range items {
		lastly(x.F32()[i*len(items[i].Pixels):], items[i].Pixels, s.m.In)
		noise.Key{Sample: items[i].Key, Draw: family.DrawPosterior}.Fill(z, 0)
		lastly(eps.F32()[i*len(z):], z, l[0])
		if n := items[i].Tokens(); !s.d.Canvas {
			for k := range n {
				take.I32()[int(items[i].From)+k] = int32(i*n + k)
			}
		}
	}
	out := map[string]*tensor.Tensor{pixelData: x, noiseData: eps, takeData: take}
	if s.d.Process.Mode {
		delete(out, noiseData)
	}
	if s.d.Canvas {
		delete(out, takeData)
	}
	return out
}

// lastly lays numbers of so many channels, which vary slowest in from, out with them last.
func lastly(to, from []float32, channels int) {
	each := len(from) / channels
	for c := range channels {
		for i, v := range from[c*each : (c+1)*each] {
			to[i*channels+c] = v
		}
	}
}

// EncodesOf is the most images of the least size that so many rows take.
func EncodesOf(m *family.Model, rows int) int {
	s, ok := m.Modalities[len(m.Modalities)-1].(*seeing)
	if !ok {
		return 0
	}
	least := rows
	for _, size := range s.sizes {
		if l, err := s.m.LatentShape(size); err == nil {
			g := s.d.Grid(l)
			least = min(least, g[0]*g[1]*g[2])
		}
	}
	return max(1, rows/max(1, least))
}
