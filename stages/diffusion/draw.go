package diffusion

import (
	"context"
	"fmt"
	"io"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/noise"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

// Drawing says how pictures are drawn.
type Drawing struct {
	Notes    io.Writer // what of captions is not read is said here; nil for nowhere
	Steps    int       // evaluations of the denoiser, about
	Guidance float64   // 1 for none (arXiv:2207.12598)
	Rescale  float64   // share of the way to the deviation without guidance (arXiv:2305.08891, §3.4)
	Negative string    // caption in the place of none, with guidance
	Seed     uint64
	Size     [3]int   // frames, height and width in pixels; the zero value takes the run's first
	Images   [][]byte // files of images: the one that clips begin with, or those that are changed
	// checkpoint or folder of the model for levels of noise that this one is not trained at; "" takes the
	// other expert of the model's pipeline
	Expert string
	Batch  int // pictures drawn at once; 0 for one. No number depends on it
	Noise  Noise
	// Stepped is told of evaluations of the denoiser that are done, of all; nil for nobody.
	Stepped func(done, all int)
}

// Picture is what was drawn for a caption: [3 T H W] from -1 to 1.
type Picture struct {
	Caption string
	Pixels  []float32
	Size    [3]int
}

// Draw draws a picture for each caption, in order, and hands it to each as it is done. Numbers depend on
// the caption, its place in the list and the seed, and not on the others.
func Draw(m *trained.Trained, ctx context.Context, captions []string, o Drawing, each func(Picture) error) error {
	if d := m.Model.Denoiser; d != nil && d.Sight != nil {
		return m.Speaks()
	}
	if m.Model.Denoiser == nil {
		return exit.Usagef("the model draws no pictures: it is none of diffusion")
	}
	if m.Model.Denoiser.Takes != nil {
		return exit.Usagef("an autoencoder draws nothing: export it, and name its folder as diffusion.autoencoder of a " +
			"model that learns its latents")
	}
	if m.Cfg.Run.Diffusion.Drop == 0 && o.Guidance != 1 && o.Negative == "" {
		return exit.Usagef("guidance wants a model that was trained without captions too: set --guidance 1, or " +
			"train with diffusion.caption_dropout")
	}
	if c := &m.Cfg.Run.Diffusion; len(c.Sizes) == 0 { // a folder of diffusers says nothing of sizes
		if o.Size == ([3]int{}) {
			return exit.Usagef("the model's folder does not say what sizes it draws: name one with --size")
		}
		c.Sizes = []string{fmt.Sprintf("%dx%dx%d", o.Size[0], o.Size[1], o.Size[2])}
	}
	x, err := NewPictures(m.Cfg, m.Model.Denoiser)
	if err != nil {
		return err
	}
	if x.notes.to = o.Notes; x.notes.to != nil {
		for _, c := range captions {
			if err := x.notes.read(x.Text, c); err != nil {
				return err
			}
		}
	}
	b, err := m.Backend()
	if err != nil {
		return err
	}
	defer kernels.Close(b)
	gen, err := sample.New(m.Model, m.Lora, tensor.F32, b, tensor.NewPool("draw", 0), m.Fill)
	if err != nil {
		return err
	}
	defer gen.Close()
	p, err := newPainter(m, x, gen, o)
	if err != nil {
		return err
	}
	other, err := otherExpert(m, o.Expert)
	if err != nil {
		return err
	}
	if other != nil {
		defer other.Close()
		if p.other, err = sample.New(other.Model, other.Lora, tensor.F32, b, tensor.NewPool("draw", 0),
			other.Fill); err != nil {
			return err
		}
		defer p.other.Close()
	}
	for from := 0; from < len(captions); from += max(1, o.Batch) {
		to := min(len(captions), from+max(1, o.Batch))
		p.all = len(captions) * len(p.plan.Times)
		if err := p.draw(ctx, captions[from:to], from, each); err != nil {
			return err
		}
	}
	return nil
}

// painter draws pictures of one size.
type painter struct {
	x     *Pictures
	gen   *sample.Generator
	other *sample.Generator // of levels that gen's model is not trained at; nil for none
	image []float32         // features of the image that clips begin with
	given []float32         // what the model is given of the image that clips begin with
	with  []*encoded        // images that are changed
	first []float32         // latents of that image for a model that has it among its latents
	o     Drawing
	plan  *noise.Sampler
	shape [4]int // of latents
	size  [3]int
	done  int // evaluations
	all   int
}

func newPainter(m *trained.Trained, x *Pictures, gen *sample.Generator, o Drawing) (*painter, error) {
	p := &painter{x: x, gen: gen, o: o, size: o.Size}
	if p.size == ([3]int{}) {
		p.size = x.Sizes[0]
	}
	var err error
	if p.shape, err = x.Encoder.Shape(p.size); err != nil {
		return nil, exit.Usagef("%v", err)
	}
	if err := o.Noise.fits(p.shape); err != nil {
		return nil, err
	}
	s, err := fit.Scheduler(m.Cfg)
	if err != nil {
		return nil, err
	}
	g := x.D.Grid(p.shape)
	if p.plan, err = s.Sampler(options(x.D, s, o.Steps, g[0]*g[1]*g[2])); err != nil {
		return nil, exit.Usagef("%v", err)
	}
	return p, p.begin(m)
}

// options are those of a scheduler for pictures of so many tokens, as the model's pipeline of diffusers sets them.
func options(d *family.Denoiser, s noise.Scheduler, steps, tokens int) noise.Options {
	o := noise.Options{Steps: steps}
	if f, ok := s.(*noise.FlowMatchEuler); ok && (d.Even || f.Dynamic) {
		o.Sigmas = noise.FlowLevels(steps)
		if f.Dynamic {
			o.Mu = f.Mu(tokens)
		}
	}
	return o
}

// The uses of a picture's random numbers: where it begins, and the noise of each evaluation.
const (
	drawStart = iota
	drawStep
)

// draw draws some captions, of which the first is number from of all.
func (p *painter) draw(ctx context.Context, captions []string, from int, each func(Picture) error) error {
	n := p.shape[0] * p.shape[1] * p.shape[2] * p.shape[3]
	states, texts := make([]noise.State, len(captions)), make([]*captioned, len(captions))
	none, err := p.text(p.o.Negative)
	if err != nil {
		return err
	}
	key := func(i int, use uint64) noise.Key {
		return noise.Key{Sample: dataset.Draw(p.o.Seed, 0, int64(from+i), 0, 0), Draw: use}
	}
	for i, text := range captions {
		v := make([]float32, n)
		if p.o.Noise.Values != nil {
			copy(v, p.o.Noise.of(from+i, n))
		} else {
			key(i, drawStart).Fill(v, 0)
		}
		states[i] = p.plan.Begin(v)
		if texts[i], err = p.text(text); err != nil {
			return err
		}
	}
	for !p.plan.Done(states[0]) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		out, err := p.evaluate(states, texts, none)
		if err != nil {
			return err
		}
		for i := range states {
			var eps []float32
			if p.plan.Noisy {
				eps = make([]float32, n)
				key(i, drawStep+uint64(states[i].Done)).Fill(eps, 0)
			}
			if states[i], err = p.plan.Step(states[i], out[i], eps); err != nil {
				return err
			}
		}
		if p.done += len(states); p.o.Stepped != nil {
			p.o.Stepped(p.done, p.all)
		}
	}
	for i := range states {
		pixels, size, err := p.x.Encoder.Decode(p.kept(states[i].X), p.shape)
		if err != nil {
			return err
		}
		if err := each(Picture{captions[i], pixels, size}); err != nil {
			return err
		}
	}
	return nil
}

// evaluate is what the denoiser says of all states, guided.
func (p *painter) evaluate(states []noise.State, texts []*captioned, none *captioned) ([][]float32, error) {
	guided := p.o.Guidance != 1 && p.x.Text != nil
	d := p.x.D
	var items []family.Encoded
	gen := p.gen
	if p.other != nil && !d.Process.Trains(p.plan.Times[states[0].Done]) {
		gen = p.other
	}
	for i, s := range states {
		e := family.Encoded{Grid: d.Grid(p.shape), X0: d.Tokens(p.shape, p.kept(p.plan.Input(s))),
			Level: &noise.Level{Alpha: 1, Time: p.plan.Times[s.Done]}, Frame: framed(p.size[2], p.size[1], p.size)}
		e.Image = p.image
		if p.given != nil {
			e.Given = d.Tokens(p.x.givenShape(p.shape), p.given)
		}
		if p.first != nil {
			e.Clean = 1
		}
		for _, v := range p.with {
			p.x.behind(&e, v)
		}
		e.Noise = make([]float32, len(e.X0))
		p.x.describe(&e, texts[i], none)
		items = append(items, e)
		if guided {
			p.x.describe(&e, none, none)
			items = append(items, e)
		}
	}
	rows, err := gen.Predict(items)
	if err != nil {
		return nil, err
	}
	n := len(rows) / len(items)
	if n*len(items) != len(rows) {
		return nil, fmt.Errorf("%d numbers for %d pictures", len(rows), len(items))
	}
	out := make([][]float32, len(states))
	own := p.shape[0] * p.shape[1] * p.shape[2] * p.shape[3]
	for i := range out {
		if !guided {
			out[i] = d.Latents(p.shape, rows[i*n:i*n+own])
			continue
		}
		with, without := rows[2*i*n:2*i*n+own], rows[(2*i+1)*n:(2*i+1)*n+own]
		mixed := noise.Guide(without, with, float32(p.o.Guidance))
		if p.o.Rescale > 0 {
			mixed = noise.Rescale(mixed, with, float32(p.o.Rescale))
		}
		out[i] = d.Latents(p.shape, mixed)
	}
	return out, nil
}
