package family

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/mat"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// FillFunc writes a region of a logical parameter, or of its optimizer state, as float32; kind is "param",
// "master" or the name of a state tensor. A false result leaves the value at its default: the parameter for
// master, zero for state. Of kind checkpoint.PackedKind dst has the bits of whole rows as they lie in
// memory; a false result makes them of the parameter.
type FillFunc func(kind string, p *grad.Param, g Region, dst []float32) (bool, error)

// FillAdapters gives DoRA's magnitudes the norms of the rows of the weights that fill gives, rows of the table that learn
// those of the table, and adapters what they begin with.
func FillAdapters(m *Model, lora *block.Lora, fill FillFunc) FillFunc {
	if lora == nil || !lora.DoRA && lora.Tokens == nil && lora.Init == "" {
		return fill
	}
	first := &firsts{lora: lora, fill: fill, made: map[string][2]*mat.Dense{}}
	weights := map[string]*grad.Param{}
	for _, p := range m.Params(nil) {
		weights[p.Name] = p
	}
	return func(kind string, p *grad.Param, g Region, dst []float32) (bool, error) {
		base, ok := strings.CutSuffix(p.Name, block.Magnitude)
		if p.Name == TokenRows && kind == "param" {
			for i, w := 0, weights[EmbedName+".weight"]; i*w.Shape[1] < len(dst); i++ {
				id := lora.Tokens[g.Intervals(p)[0][0]+i]
				if _, err := fill(kind, w, Region{From: id, To: id + 1}, dst[i*w.Shape[1]:(i+1)*w.Shape[1]]); err != nil {
					return false, err
				}
			}
			return true, nil
		}
		if !ok && kind == "param" && lora.Init != "" {
			return first.of(weights, p, g, dst)
		}
		if !ok || kind != "param" {
			return fill(kind, p, g, dst)
		}
		w, at := weights[base+".weight"], g.Intervals(p)[0][0]
		row := make([]float32, w.Shape[1])
		for i := range dst {
			if _, err := fill(kind, w, Region{From: at + i, To: at + i + 1}, row); err != nil {
				return false, err
			}
			sum := 0.0
			for _, x := range row {
				sum += float64(x) * float64(x)
			}
			dst[i] = float32(math.Sqrt(sum))
		}
		return true, nil
	}
}

// FromCheckpoint fills parameters and state from an own checkpoint, whatever plan wrote it.
func FromCheckpoint(r *checkpoint.Reader, optimizer bool) FillFunc {
	have := map[[2]string]checkpoint.Info{}
	for _, kind := range r.Kinds() {
		for _, t := range r.Kind(kind).Tensors() {
			have[[2]string{kind, t.Name}] = t
		}
	}
	return func(kind string, p *grad.Param, g Region, dst []float32) (bool, error) {
		info, ok := have[[2]string{kind, p.Name}]
		switch {
		case !ok && kind == "param":
			return false, &checkpoint.Error{File: r.Path(), Tensor: p.Name, Fault: checkpoint.Missing,
				Why: "the model needs it"}
		case !ok && strings.HasPrefix(kind, checkpoint.PackedPrefix):
			return false, nil
		case !ok && kind == "master" || !strings.HasPrefix(kind, checkpoint.PackedPrefix) &&
			kind != "param" && !optimizer:
			return false, nil
		case !ok:
			return false, &checkpoint.Error{File: r.Path(), Tensor: p.Name, Fault: checkpoint.Missing,
				Why: "the checkpoint has no " + kind + " of it; to start the optimizer afresh, name it as " +
					"checkpoint.load, with checkpoint.load_optimizer=false and another checkpoint.dir"}
		}
		box, shape := g.Intervals(p), p.Shape
		if strings.HasPrefix(kind, checkpoint.PackedPrefix) {
			shape = p.Words()
			box[len(box)-1] = [2]int{0, shape[len(shape)-1]}
		}
		if fmt.Sprint(info.Shape) != fmt.Sprint(shape) {
			return false, &checkpoint.Error{File: r.Path(), Tensor: p.Name, Fault: checkpoint.Misshapen,
				Why: fmt.Sprintf("shape %v, the model needs %v", info.Shape, shape)}
		}
		d, err := tensor.ParseDType(strings.ToLower(string(info.DType)))
		if err != nil {
			return false, err
		}
		if d == tensor.I32 {
			return true, r.ReadLogical(p.Name, kind, box, tensor.Of(tensor.F32, dst, len(dst)).Bytes())
		}
		raw := make([]byte, len(dst)*d.Size())
		if err := r.ReadLogical(p.Name, kind, box, raw); err != nil {
			return false, err
		}
		tensor.Widen(d, raw, dst)
		return true, nil
	}
}
