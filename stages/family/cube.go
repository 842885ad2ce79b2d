package family

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Logical tensors of three axes are matrices of experts. Checkpoints keep them one by one (Source.Stack), or
// all in one tensor, in which gate and up may lie together (Source.Within).

// Names lists the tensors of a checkpoint that a logical parameter lies in.
func (s Source) Names(p *grad.Param) []string {
	if !s.Stack {
		return []string{s.Name}
	}
	var out []string
	for i := range p.Shape[0] {
		out = append(out, s.element(i))
	}
	return out
}

// element is the tensor of the i-th element of a stack.
func (s Source) element(i int) string { return strings.Replace(s.Name, "*", strconv.Itoa(i), 1) }

// stacked lists the tensors of a stack.
func (s Source) stacked(p *grad.Param) (out []checkpoint.Info) {
	for _, name := range s.Names(p) {
		out = append(out, checkpoint.Info{Name: name, Shape: p.Shape[1:]})
	}
	return out
}

// piece is a run of a logical tensor's elements that one tensor of a checkpoint has.
type piece struct {
	name   string
	ranges [][2]int
	first  int // matrix, of those that are asked for
	n      int // matrices
}

// pieces are those of the matrices, rows and columns iv.
func (s Source) pieces(iv [][2]int) (out []piece) {
	rows := [2]int{iv[1][0] + s.Within[0], iv[1][1] + s.Within[0]}
	if !s.Stack {
		return []piece{{s.Name, [][2]int{iv[0], rows, iv[2]}, 0, iv[0][1] - iv[0][0]}}
	}
	for e := iv[0][0]; e < iv[0][1]; e++ {
		out = append(out, piece{s.element(e), [][2]int{rows, iv[2]}, e - iv[0][0], 1})
	}
	return out
}

// readCube fills dst with a region of a logical tensor of three axes.
func (w *Weights) readCube(p *grad.Param, g Region, s Source, dst []float32) error {
	iv := g.Intervals(p)
	each := (iv[1][1] - iv[1][0]) * (iv[2][1] - iv[2][0])
	for _, x := range s.pieces(iv) {
		d, err := w.float(x.name)
		if err != nil {
			return err
		}
		raw := make([]byte, x.n*each*d.Size())
		if err := w.src.ReadRanges(x.name, x.ranges, raw); err != nil {
			return err
		}
		tensor.Widen(d, raw, dst[x.first*each:(x.first+x.n)*each])
	}
	return nil
}

// float is the dtype of a tensor that training starts from.
func (w *Weights) float(name string) (tensor.DType, error) {
	dtype := w.infos[name].DType
	d, err := tensor.ParseDType(strings.ToLower(string(dtype)))
	if err != nil || !d.Float() {
		return d, &checkpoint.Error{File: w.path, Tensor: name, Fault: checkpoint.Misshapen,
			Why: fmt.Sprintf("dtype %s is no floating-point type that training starts from", dtype)}
	}
	return d, nil
}

// exportCube writes a whole logical tensor of three axes.
func (s Source) exportCube(dst checkpoint.Sink, dtype func(hf string) string, p *grad.Param,
	v []float32) error {
	each := p.Shape[1] * p.Shape[2]
	for _, x := range s.pieces(Whole(p).Intervals(p)) {
		d, err := tensor.ParseDType(strings.ToLower(dtype(x.name)))
		if err != nil {
			return err
		}
		raw := make([]byte, x.n*each*d.Size())
		tensor.Narrow(d, v[x.first*each:(x.first+x.n)*each], raw)
		if err := dst.WriteRanges(x.name, x.ranges, raw); err != nil {
			return err
		}
	}
	return nil
}
