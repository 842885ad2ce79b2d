package sample

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// LogProbs gives the log-probability of each row's target, 0 where it is negative: the bits that training
// computes with the same weights. The rows are whole sequences one after the other, cut by cu as
// Microbatch.Cu cuts them. The sequence that was fed before is forgotten.
func (g *Generator) LogProbs(ids, targets, positions, cu []int32) ([]float32, error) {
	out, err := g.whole(ids, targets, positions, cu, block.Rec{NLL: true}, "nll")
	for i, x := range out {
		out[i] = -x
	}
	return out, err
}

// AllLogits gives the logits of each row of whole sequences, as LogProbs takes them: [rows vocabulary], under a cap.
func (g *Generator) AllLogits(ids, positions, cu []int32) ([]float32, error) {
	return g.whole(ids, make([]int32, len(ids)), positions, cu, block.Rec{Logits: true}, "logits")
}

// Values gives what the model's head of one number gives each row of whole sequences, as LogProbs takes them.
func (g *Generator) Values(ids, positions, cu []int32) ([]float32, error) {
	return g.whole(ids, make([]int32, len(ids)), positions, cu, block.Rec{Values: true}, "values")
}

// AllStates gives the hidden states of each row of whole sequences behind the last norm, as LogProbs takes
// them: [rows hidden].
func (g *Generator) AllStates(ids, positions, cu []int32) ([]float32, error) {
	return g.whole(ids, make([]int32, len(ids)), positions, cu, block.Rec{States: true}, "final")
}

// whole runs a record on whole sequences and gives one number a row.
func (g *Generator) whole(ids, targets, positions, cu []int32, rec block.Rec, want string) ([]float32, error) {
	if len(ids) != len(targets) || len(ids) != len(positions) || len(cu) == 0 || int(cu[len(cu)-1]) != len(ids) {
		return nil, fmt.Errorf("sample: %d tokens with %d targets and borders %v", len(ids), len(targets), cu)
	}
	if g.m.Vision != nil || !g.m.Task().Writes {
		return nil, fmt.Errorf("sample: %s is no model of text alone", g.m.Family)
	}
	g.Reset()
	n := len(ids)
	rec.Shape, rec.Lora = block.Shape{Rows: n}, g.lora
	if rec.Logits || rec.States { // others are of a training, whose positions are those of its length
		defer g.lengthen(int(slices.Max(positions)) + 1)()
	}
	tr := g.m.Record(g.options(), rec, family.Stage{To: len(g.m.Blocks)})
	all := map[string]*tensor.Tensor{"ids": tensor.Of(tensor.I32, ids, n), "targets": tensor.Of(tensor.I32, targets, n),
		"positions": tensor.Of(tensor.I32, positions, n), "cu_seqlens": tensor.Of(tensor.I32, cu, len(cu)),
		"cu_seqlens_k": tensor.Of(tensor.I32, cu, len(cu))}
	if kinds := g.m.Kinds(ids); kinds != nil {
		all[block.KindsOf] = kinds
	}
	data := map[string]*tensor.Tensor{}
	for _, name := range tr.Data {
		if data[name] = all[name]; all[name] == nil {
			return nil, fmt.Errorf("sample: %s reads %s, which there is not", g.m.Family, name)
		}
	}
	out, err := g.outputs(tr, data)
	if err != nil {
		return nil, err
	}
	return out[want], nil
}

// outputs runs a trace and gives what it makes, as float32.
func (g *Generator) outputs(tr *grad.Trace, data map[string]*tensor.Tensor) (map[string][]float32, error) {
	if err := g.run.Place(data); err != nil {
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
