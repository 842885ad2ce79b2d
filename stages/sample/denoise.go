package sample

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Predict gives what a denoiser says of noisy latents, [rows Width] of all of them one after another: items
// lie behind each other and say their levels, whose Alpha is 1 and whose Sigma is 0 where X0 is noisy
// already. More are data of blocks before the denoiser, nil for none.
func (g *Generator) Predict(items []family.Encoded, more map[string]any) ([]float32, error) {
	p := g.NewPrediction()
	defer p.Close()
	return p.Of(items, more)
}

// Prediction is a denoiser that is asked several times about latents of one shape, of which a trace is recorded
// once. It is the generator's only user until it is closed.
type Prediction struct {
	g     *Generator
	class int32
	rows  int
	trace *grad.Trace
}

// NewPrediction begins one.
func (g *Generator) NewPrediction() *Prediction { return &Prediction{g: g} }

// Close gives the constants of the trace back.
func (p *Prediction) Close() { p.g.run.Close() }

// Of is Generator.Predict. Items of another shape than before have another trace.
func (p *Prediction) Of(items []family.Encoded, more map[string]any) ([]float32, error) {
	g := p.g
	in := &family.Inputs{Cu: []int32{0}, More: map[string]any{family.EncodedKey: items}}
	for k, v := range more {
		in.More[k] = v
	}
	for i := range items {
		items[i].From = int32(in.Rows)
		in.Rows += items[i].Tokens()
		in.Cu = append(in.Cu, int32(in.Rows))
	}
	if err := g.m.Denoiser.Check(items, in.Rows); err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	class := g.m.Class(in, false)
	data := g.m.Tensors(in, class)
	data["cu_seqlens"] = tensor.Of(tensor.I32, in.Cu, len(in.Cu))
	if err := g.place(data); err != nil {
		return nil, err
	}
	if p.trace == nil || p.class != class || p.rows != in.Rows {
		p.Close() // a trace has constants of its own
		rec := block.Rec{Shape: g.m.Shape(in.Rows, class), Lora: g.lora, Logits: true}
		p.trace = g.m.Record(grad.Options{DType: g.dtype, NoGrad: true}, rec, family.Stage{To: len(g.m.Blocks)})
		p.class, p.rows = class, in.Rows
	}
	f := g.run.NewFrame(p.trace, data, nil, nil)
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
	return out[:in.Rows*g.m.Denoiser.Width()], nil // images that are read whole may have more behind them
}
