package family

import (
	"encoding/binary"
	"fmt"
	"slices"
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
func (s Source) element(i int) string {
	return strings.Replace(s.Name, "*", strconv.Itoa(s.First+i), 1)
}

// stacked lists the tensors of a stack.
func (s Source) stacked(p *grad.Param) (out []checkpoint.Info) {
	for _, name := range s.Names(p) {
		out = append(out, checkpoint.Info{Name: name, Shape: p.Shape[1:]})
	}
	return out
}

// cubic reports whether a logical parameter is one of all experts that is read by its matrices: one of three
// axes, or one that shares a tensor of the checkpoint with another in turns.
func (s Source) cubic(p *grad.Param) bool { return len(p.Shape) == 3 || s.Step > 0 }

// piece is a run of a logical tensor's elements that one tensor of a checkpoint has.
type piece struct {
	name   string
	ranges [][2]int
	first  int // matrix, of those that are asked for
	n      int // matrices
}

// pieces are those of the matrices, rows and columns iv; without columns a matrix is one.
func (s Source) pieces(iv [][2]int) (out []piece) {
	rows := [2]int{iv[1][0] + s.Within[0], iv[1][1] + s.Within[0]}
	if s.Step > 0 {
		rows = [2]int{s.At + s.Step*iv[1][0], s.At + s.Step*(iv[1][1]-1) + 1}
	}
	box := append([][2]int{rows}, iv[2:]...)
	if s.Turned {
		box[0], box[1] = box[1], box[0]
	}
	if !s.Stack && !s.Turned && s.Step == 0 {
		return []piece{{s.Name, append([][2]int{iv[0]}, box...), 0, iv[0][1] - iv[0][0]}}
	}
	for e := iv[0][0]; e < iv[0][1]; e++ {
		x := piece{s.Name, append([][2]int{{e, e + 1}}, box...), e - iv[0][0], 1}
		if s.Stack {
			x.name, x.ranges = s.element(e), box
		}
		out = append(out, x)
	}
	return out
}

// readCube fills dst with a region of a logical tensor of all experts.
func (w *Weights) readCube(p *grad.Param, g Region, s Source, dst []float32) error {
	iv := g.Intervals(p)
	rows, cols := iv[1][1]-iv[1][0], 1
	if len(iv) > 2 {
		cols = iv[2][1] - iv[2][0]
	}
	if rows == 0 || cols == 0 {
		return nil
	}
	for _, x := range s.pieces(iv) {
		d, err := w.float(x.name)
		if err != nil {
			return err
		}
		n := 1
		for _, r := range x.ranges {
			n *= r[1] - r[0]
		}
		raw := make([]byte, n*d.Size())
		if err := w.src.ReadRanges(x.name, x.ranges, raw); err != nil {
			return err
		}
		part := dst[x.first*rows*cols : (x.first+x.n)*rows*cols]
		if !s.Turned && s.Step == 0 {
			tensor.Widen(d, raw, part)
			continue
		}
		file := make([]float32, n)
		tensor.Widen(d, raw, file)
		s.arrange(part, file, rows, cols)
	}
	return nil
}

// arrange takes the rows and columns of a logical matrix from those that the file has of it.
func (s Source) arrange(dst, file []float32, rows, cols int) {
	step := max(1, s.Step)
	row, col := step*cols, 1
	if s.Turned {
		row, col = step, step*(rows-1)+1
	}
	for i := range rows {
		for k := range cols {
			dst[i*cols+k] = file[i*row+k*col]
		}
	}
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

// numbers is the size of a number of a tensor of the checkpoint, and how numbers become float32. Values that no gradient
// reaches may be booleans or integers; an export has float32 in their place, which PyTorch turns back where it loads them.
func (w *Weights) numbers(p *grad.Param, name string) (size int, widen func(raw []byte, dst []float32), err error) {
	each := func(size int, number func(raw []byte) float32) (int, func(raw []byte, dst []float32), error) {
		return size, func(raw []byte, dst []float32) {
			for i := range dst {
				dst[i] = number(raw[i*size:])
			}
		}, nil
	}
	switch d := w.infos[name].DType; {
	case d == checkpoint.Bool && p.Fixed:
		return each(1, func(raw []byte) float32 { return float32(raw[0]) })
	case d == checkpoint.I64 && p.Fixed:
		return each(8, func(raw []byte) float32 { return float32(int64(binary.LittleEndian.Uint64(raw))) })
	}
	d, err := w.float(name)
	return d.Size(), func(raw []byte, dst []float32) { tensor.Widen(d, raw, dst) }, err
}

// exportCube writes a whole logical tensor of three axes.
func (s Source) exportCube(dst checkpoint.Sink, dtype func(hf string) string, p *grad.Param, v []float32) error {
	rows, cols := p.Shape[1], p.Shape[2]
	for _, x := range s.pieces(Whole(p).Intervals(p)) {
		d, err := tensor.ParseDType(strings.ToLower(dtype(x.name)))
		if err != nil {
			return err
		}
		part := v[x.first*rows*cols : (x.first+x.n)*rows*cols]
		if s.Turned {
			file := make([]float32, len(part))
			turn(file, part, rows, cols)
			part = file
		}
		raw := make([]byte, len(part)*d.Size())
		tensor.Narrow(d, part, raw)
		if err := dst.WriteRanges(x.name, x.ranges, raw); err != nil {
			return err
		}
	}
	return nil
}

// InTurns are logical tensors that share one of a checkpoint in turns, as far as they have come.
type turns map[string][][]float32

// add takes one of them; when all have come, it gives them as one tensor, with its place.
func (t turns) add(s Source, p *grad.Param, v []float32) (Source, *grad.Param, []float32, bool) {
	if s.Step == 0 {
		return s, p, v, true
	}
	all := t[s.Name]
	if all == nil {
		all = make([][]float32, s.Step)
		t[s.Name] = all
	}
	all[s.At] = v
	for _, one := range all {
		if one == nil {
			return s, p, nil, false
		}
	}
	delete(t, s.Name)
	joined := *p
	joined.Shape = slices.Clone(p.Shape)
	joined.Shape[1] *= s.Step
	width := tensor.Len(p.Shape[2:])
	out := make([]float32, 0, tensor.Len(joined.Shape))
	for i := 0; i < len(v); i += width {
		for _, one := range all {
			out = append(out, one[i:i+width]...)
		}
	}
	s.Step, s.At = 0, 0
	return s, &joined, out, true
}
