package serving

import (
	"math/bits"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/topology/collective"
	"github.com/lfactor/lfactor/topology/cost"
)

// On prices steps of a model on a described machine: the kernels of the step's own trace, on tp devices that divide
// them evenly and add up the rows of two layers' outputs in each block. Keys and values are read where they lie. Prices
// of like loads are computed once.
func On(m *cost.Machine, of *family.Model, d tensor.DType, tp int) func(l sample.Load) float64 {
	known := map[sample.Load]float64{}
	var devices []int
	for i := range tp {
		devices = append(devices, i)
	}
	program := m.Program()
	price := func(l sample.Load) float64 {
		if t, ok := known[l]; ok {
			return t
		}
		o := grad.Options{DType: d, NoGrad: true, Scores: m.Scores, Device: m.Kernels(), Sequences: l.Sequences}
		o.Program = func(op kernels.Op, p []kernels.Product, bytes int64) (more int64, calls int) {
			if op == kernels.PagedRows {
				return -bytes, 0
			}
			if calls = 1; program != nil {
				more, calls = program(op, p, bytes)
			}
			return more, calls
		}
		t, tr := 0.0, traceOf(of, o, l)
		for _, s := range tr.F {
			t += m.Segment(s.Cost.Filled/int64(tp), s.Cost.Bytes/int64(tp), s.Cost.Calls)
		}
		if tp > 1 {
			rows := int64(l.Rows * of.Spec.Hidden * d.Size())
			t += 2 * float64(of.Spec.Layers) * m.Collective(collective.AllReduce, devices, rows)
		}
		known[l] = t
		return t
	}
	return func(l sample.Load) float64 { // what more keys cost lies on a line
		l.Rows, l.Heads, l.Sequences = coarse(l.Rows), coarse(l.Heads), coarse(l.Sequences)
		few, many := l, l
		few.Keys = 1 << max(6, bits.Len(uint(l.Keys))-1)
		many.Keys = 2 * few.Keys
		a := price(few)
		return a + (price(many)-a)*max(0, float64(l.Keys-few.Keys)/float64(few.Keys))
	}
}

// coarse rounds a number up to one of four binary digits, so that few prices are computed.
func coarse(n int) int {
	unit := 1 << max(0, bits.Len(uint(max(n, 1)-1))-4)
	return (max(n, 1) + unit - 1) / unit * unit
}

// traceOf is that of a step of a class.
func traceOf(of *family.Model, o grad.Options, l sample.Load) *grad.Trace {
	return of.Record(o, block.Rec{Shape: of.Vision.Shape(l.Rows, 0), Logits: true, Cached: true, Pool: l.Keys,
		KeyRows: l.Keys, Heads: l.Heads}, family.Stage{To: len(of.Blocks)})
}

// Memory is the bytes of a model's parameters, and of the keys and values of a token, in a type.
func Memory(of *family.Model, d tensor.DType) (weights, token int64) {
	for _, p := range of.ParamsIn(d, nil) {
		weights += int64(tensor.Len(p.Shape)) * int64(p.Value.DType.Size())
	}
	for _, p := range traceOf(of, grad.Options{DType: d, NoGrad: true}, sample.Load{Rows: 1, Keys: 64, Heads: 1}).Out {
		if p.Name != "logits" {
			token += int64(tensor.Len(p.Value.Shape)) * int64(p.Value.DType.Size())
		}
	}
	return weights, token
}
