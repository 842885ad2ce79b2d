package sample

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// LogProbs gives the log-probability of each row's target, 0 where it is negative: the bits that training
// computes with the same weights. The rows are whole sequences one after the other, cut by cu as
// Microbatch.Cu cuts them. The sequence that was fed before is forgotten.
func (g *Generator) LogProbs(ids, targets, positions, cu []int32) ([]float32, error) {
	if len(ids) != len(targets) || len(ids) != len(positions) || len(cu) == 0 ||
		int(cu[len(cu)-1]) != len(ids) {
		return nil, fmt.Errorf("sample: %d tokens with %d targets and borders %v", len(ids), len(targets),
			cu)
	}
	if g.m.Vision != nil || g.m.Denoiser != nil {
		return nil, fmt.Errorf("sample: %s is no model of text alone", g.m.Family)
	}
	g.Reset()
	n := len(ids)
	tr := g.m.Record(grad.Options{DType: g.dtype, NoGrad: true},
		block.Rec{Shape: block.Shape{Rows: n}, Lora: g.lora,
			NLL: true}, family.Stage{To: len(g.m.Blocks)})
	data := map[string]*tensor.Tensor{"ids": tensor.Of(tensor.I32, ids, n),
		"targets":   tensor.Of(tensor.I32, targets, n),
		"positions": tensor.Of(tensor.I32, positions, n), "cu_seqlens": tensor.Of(tensor.I32, cu, len(cu)),
		"cu_seqlens_k": tensor.Of(tensor.I32, cu, len(cu))}
	if kinds := g.m.Kinds(ids); kinds != nil {
		data[block.KindsOf] = kinds
	}
	out, err := g.outputs(tr, data)
	if err != nil {
		return nil, err
	}
	for i, x := range out["nll"] {
		out["nll"][i] = -x
	}
	return out["nll"], nil
}

// outputs runs a trace and gives what it makes, as float32.
func (g *Generator) outputs(tr *grad.Trace, data map[string]*tensor.Tensor) (map[string][]float32, error) {
	if err := g.place(data); err != nil {
		return nil, err
	}
	f := g.run.NewFrame(tr, data, nil, nil)
	if _, err := g.run.Step(f, grad.F, 0, nil); err != nil {
		f.Drop()
		return nil, err
	}
	out := map[string][]float32{}
	for name, t := range f.Outputs() {
		out[name] = g.read(t)
	}
	f.Close()
	g.run.Close() // the next trace has constants of its own
	return out, nil
}
