package sample

import (
	"bytes"
	"fmt"
	"maps"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
)

// Predict gives what a denoiser says of noisy latents, [rows Width] of all of them one after another: items
// lie behind each other and say their levels, whose Alpha is 1 and whose Sigma is 0 where X0 is noisy
// already. Of a policy that draws a clip together with its actions, what it says of the clips lies behind.
func (g *Generator) Predict(items []family.Encoded) ([]float32, error) {
	p := g.NewPrediction()
	defer p.Close()
	return p.Of(items)
}

// Prediction is a denoiser that is asked several times about latents of one shape, of which a trace is recorded once.
// What depends neither on the latents nor on their level of noise, such as what a policy makes of the views,
// is computed once and used as long as its data stay. It is the generator's only user until it is closed.
type Prediction struct {
	g          *Generator
	class      int32
	rows       int
	once, rest *grad.Trace               // rest is the whole where it is not parted
	steady     map[string]*tensor.Tensor // the data that once was computed from
	kept       map[int]*tensor.Tensor
	clips      bool // what is said of clips beside a policy's actions is asked, and not of these
}

// NewPrediction begins one.
func (g *Generator) NewPrediction() *Prediction { return &Prediction{g: g} }

// Close gives the constants of the trace back.
func (p *Prediction) Close() {
	p.forget()
	p.g.run.Close()
}

// forget gives what was kept back.
func (p *Prediction) forget() {
	for _, t := range p.kept {
		t.Release()
	}
	p.kept, p.steady = nil, nil
}

// record makes the trace of a shape.
func (p *Prediction) record(rows int, class int32) {
	p.Close() // a trace has constants of its own
	g := p.g
	rec := block.Rec{Shape: g.m.Shape(rows, class), Lora: g.lora, Logits: true, Clips: p.clips}
	p.rest = g.m.Record(g.options(), rec, family.Stage{To: len(g.m.Blocks)})
	if once, rest := p.rest.Steady(p.moves); once != nil {
		p.once, p.rest = once, rest
	}
	p.class, p.rows = class, rows
}

// settle computes what does not change, unless it was computed from the same data.
func (p *Prediction) settle(data map[string]*tensor.Tensor) error {
	steady := map[string]*tensor.Tensor{}
	same := p.kept != nil
	for name, t := range data {
		if p.moves(name) {
			continue
		}
		steady[name] = t
		have := p.steady[name]
		same = same && have != nil && bytes.Equal(have.Bytes(), t.Bytes())
	}
	if same {
		return nil
	}
	p.forget()
	mine := map[string]*tensor.Tensor{}
	for name, t := range steady {
		t.Retain()
		mine[name] = t
	}
	if err := p.g.run.Place(mine); err != nil {
		return err
	}
	f := p.g.run.NewFrame(p.once, mine, nil, nil)
	if _, err := p.g.run.Step(f, grad.F, 0, nil); err != nil {
		f.Drop()
		return err
	}
	p.kept, p.steady = f.Kept(), steady
	f.Close()
	return nil
}

// Of is Generator.Predict. Items of another shape than before have another trace.
func (p *Prediction) Of(items []family.Encoded) ([]float32, error) {
	g, prompted := p.g, p.g.m.Denoiser.Hosted //lfvet:kind items of a hosted policy have a prompt before them
	in := &family.Inputs{Cu: []int32{0}, More: family.EncodedKey.With(family.More{}, items)}
	for i := range items {
		items[i].From = int32(in.Rows)
		if in.Rows += items[i].Tokens(); prompted {
			in.Rows = int(items[i].From) + len(items[i].IDs) + g.m.Denoiser.Readouts
		}
		in.Cu = append(in.Cu, int32(in.Rows))
	}
	if prompted {
		prompts(in, items, g.m.Denoiser.Readouts)
	}
	if err := g.m.Denoiser.Check(items, in.Rows); err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	class := g.m.Class(in, false)
	data := g.m.Tensors(in, class)
	data["cu_seqlens"] = tensor.Of(tensor.I32, in.Cu, len(in.Cu))
	if prompted {
		hosted(in, data)
	}
	if p.rest == nil || p.class != class || p.rows != in.Rows {
		p.record(in.Rows, class)
	}
	if p.once != nil {
		if err := p.settle(data); err != nil {
			return nil, err
		}
		maps.DeleteFunc(data, func(name string, _ *tensor.Tensor) bool { return !p.moves(name) })
	}
	if err := g.run.Place(data); err != nil {
		return nil, err
	}
	f := g.run.NewFrame(p.rest, data, nil, nil)
	f.Resume(p.kept)
	if _, err := g.run.Step(f, grad.F, 0, nil); err != nil {
		f.Drop()
		return nil, err
	}
	t := f.Outputs()["logits"]
	host := tensor.Make(t.DType, t.Shape...)
	kernels.Read(g.run.Backend, host.Bytes(), t)
	t.Release()
	f.Close()
	out := make([]float32, tensor.Len(host.Shape))
	tensor.Widen(host.DType, host.Bytes(), out)
	if p.clips && g.m.Denoiser.Clip.Blocks != nil { // actions, and clips behind them
		return out, nil
	}
	rows, w := 0, g.m.Denoiser.Width()
	for i := range items {
		if rows += items[i].Tokens(); p.clips {
			rows += items[i].Clip.Tokens() - items[i].Tokens()
		}
	}
	if p.clips {
		w = g.m.Denoiser.Clip.Latents.Width()
	}
	n := rows * w
	for i := range items {
		if g.m.Denoiser.Worded() { // what is said of clips lies behind
			n += len(items[i].Clip.X0)
		}
	}
	return out[:n], nil // images that are read whole may have more behind them
}

// moves reports data that follow a step from noise to what is drawn.
func (p *Prediction) moves(data string) bool {
	if p.clips && p.g.m.Denoiser.Clip.Blocks != nil && family.Moves(data) {
		return true
	}
	if p.clips {
		return data == "clip.x0" || data == "clip.time" || data == "clip.weight" // of a loss that nobody takes
	}
	return family.Moves(data) || p.g.m.Denoiser.Worded() && family.MovesJointly(data)
}

// Film draws the clips of items, which have noise in X0, but for the frames at the beginning that are known,
// in so many steps: what is said with the caption is led away from what is said with that of nothing by the
// guidance of the model. Clips are then as their policies see them when they act.
func (g *Generator) Film(items []family.Encoded, steps int) error {
	f := g.m.Denoiser.Clip
	p := &Prediction{g: g, clips: true}
	defer p.Close()
	both, n := append(append([]family.Encoded(nil), items...), items...), 0
	for i := range items {
		both[len(items)+i].Text = items[i].None
		n += len(items[i].Clip.X0)
	}
	for k := range steps {
		t, by := family.Shifted(f.Acting, k, steps)
		for i := range items {
			c := items[i].Clip
			c.Part, c.Noise, c.Levels = family.NoisyPart, make([]float32, len(c.X0)), nil
			for range c.Grid[0] {
				c.Levels = append(c.Levels, noise.Level{Alpha: 1, Time: 1000 * float32(t)})
			}
		}
		said, err := p.Of(both)
		if err != nil {
			return err
		}
		without := said[n:]
		at := 0
		for i := range items {
			c := items[i].Clip
			known := c.Known * c.Grid[1] * c.Grid[2] * f.Latents.Width()
			for j := known; j < len(c.X0); j++ {
				v := without[at+j] + float32(f.Guide)*(said[at+j]-without[at+j])
				c.X0[j] -= float32(by) * v
			}
			at += len(c.X0)
		}
	}
	for i := range items {
		c := items[i].Clip
		c.Part, c.Noise, c.Levels = family.CleanPart, nil, nil
	}
	return nil
}

// prompts are the tokens and the images of prompts that a language model reads, with so many readouts behind each.
func prompts(in *family.Inputs, items []family.Encoded, readouts int) {
	told := make([]int32, len(items))
	for i, x := range items {
		in.IDs, told[i] = append(in.IDs, x.IDs...), int32(x.Told)
		for range readouts {
			in.IDs = append(in.IDs, -1)
		}
		in.Images.Values = append(in.Images.Values, x.Seen.Values...)
		for _, g := range x.Seen.Grids {
			spans := g.Spans
			g.Spans = nil
			for _, s := range spans {
				g.Spans = append(g.Spans, [2]int32{s[0] + x.From, s[1] + x.From})
				for i := s[0]; i < s[1]; i++ {
					in.IDs[x.From+i] = -1
				}
			}
			in.Images.Grids = append(in.Images.Grids, g)
		}
	}
	if readouts > 0 {
		in.More = family.PromptsKey.With(in.More, told)
	}
}

// hosted adds what a language model reads of its rows.
func hosted(in *family.Inputs, data map[string]*tensor.Tensor) {
	pos := make([]int32, in.Rows)
	for s := range len(in.Cu) - 1 {
		for i := in.Cu[s]; i < in.Cu[s+1]; i++ {
			pos[i] = i - in.Cu[s]
		}
	}
	data["ids"] = tensor.Of(tensor.I32, in.IDs, in.Rows)
	data["positions"] = tensor.Of(tensor.I32, pos, in.Rows)
}
