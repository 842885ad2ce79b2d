package host

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// packRows are the rows of a matrix that are held as float32 while they are packed.
const packRows = 256

// loadPacked sets a parameter that lies in memory in few bits: to what is kept so, else to the numbers of the
// parameter, each rounded to the nearest.
func (r *Rank) loadPacked(p *grad.Param, g family.Region, fill family.FillFunc) error {
	shape, k := p.Words(), p.Columns()
	shape = append([]int{g.To - g.From}, shape[1:]...)
	words, each := shape[len(shape)-1], tensor.Len(p.Shape[1:])/max(1, k) // rows of one of the first axis
	host := tensor.Make(tensor.I32, shape...)
	raw := host.Bytes()
	ok, err := fill(checkpoint.PackedKind(p.Packed, k), p, g, tensor.Over(tensor.F32, raw, shape...).F32())
	if err != nil {
		return err
	}
	step := max(1, packRows/max(1, each))
	for at := 0; at < shape[0] && !ok; at += step {
		part := g
		part.From, part.To = g.From+at, min(g.From+at+step, g.To)
		buf := make([]float32, (part.To-part.From)*each*k)
		has, err := fill(paramKind, p, part, buf)
		if err == nil && !has {
			err = fmt.Errorf("no values for parameter %s", p.Name)
		}
		if err != nil {
			return err
		}
		for i := range (part.To - part.From) * each {
			row := at*each + i
			p.Packed.Pack(raw[4*row*words:4*(row+1)*words], buf[i*k:(i+1)*k])
		}
	}
	t, err := r.c.Pool.New(p.Name, tensor.I32, shape...)
	if err != nil {
		return err
	}
	kernels.Write(t, raw)
	if old := r.run.Params[p.Name]; old != nil {
		old.Release()
	}
	r.run.Params[p.Name] = t
	return nil
}

// piece is how a part lies in a checkpoint: of rows in few bits, as the words that they are.
func (p Part) piece(d tensor.DType) checkpoint.Piece {
	out := checkpoint.Piece{Name: p.Param.Name, Kind: p.Kind, DType: checkpointType(d), Shape: p.Param.Shape,
		Box: p.Region.Intervals(p.Param)}
	if p.Param.Packed.Form > 0 && d == tensor.I32 {
		out.Shape = p.Param.Words()
		last := len(out.Shape) - 1
		out.Box[last] = [2]int{0, out.Shape[last]}
	}
	return out
}
