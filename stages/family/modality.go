package family

import (
	"fmt"
	"maps"
	"math"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// Port is what is known of an activation that may cross the border of a stage.
type Port struct {
	Width int
	Rows  func(s block.Shape) int // nil is one a token
	Of    string                  // named dimension without which it carries nothing, "" where it always does
	// every rank holds it whole, even where tokens are shared out: rows of it are taken by index
	Whole bool
	// Lines is of how many lines, each as long, its rows are, which ranks of context parallelism have whole
	// ones of; nil for rows of other kinds
	Lines func(s block.Shape) int
	Wide  bool // it is float32, whatever its blocks compute in
	// it is int32, and no gradient flows back
	Integer bool
}

// Inputs are what a microbatch brings beside tokens and labels.
type Inputs struct {
	Rows int     // tokens
	Cu   []int32 // borders of sequences
	IDs  []int32 // of tokens, -1 in place of features
	// what each token is to predict, below 0 where nothing is; nil where nothing is learnt
	Targets []int32
	Images  Images
	Step    int64 // that learns it, from 1; below that where nothing is learnt
	More    More  // of tasks and other modalities
}

// Modality is what a component takes beside tokens: images, sound, the states of a robot. Its part of a
// microbatch is padded to one of few shapes, its classes, so that few traces serve all.
type Modality interface {
	// Classes is the number of classes; class 0 is a microbatch without any of it.
	Classes() int32
	// Class is that of a microbatch.
	Class(in *Inputs) int32
	// Dims are the named dimensions of a class other than 0, for microbatches of rows tokens.
	Dims(rows int, class int32) map[string]int
	// Planned is the class of a microbatch of the given dimensions, or of the least that is not 0: the one
	// that memory is planned for.
	Planned(rows int, dims map[string]int) int32
	// Tensors are what blocks read, padded to shape s.
	Tensors(in *Inputs, s block.Shape) map[string]*tensor.Tensor
}

// Filler is a modality of which a class other than 0 may leave blocks out: Fill is the class of the same size
// that reaches all of them.
type Filler interface{ Fill(class int32) int32 }

// Rowed is a modality whose tensors have a row for each token only under the names that it lists.
type Rowed interface{ TokenTensors() []string }

// TokenTensors are the names of the modalities' tensors that have a row for each token.
func (m *Model) TokenTensors() (names []string) {
	for _, x := range m.Modalities {
		if r, ok := x.(Rowed); ok {
			names = append(names, r.TokenTensors()...)
		}
	}
	return
}

// Dealable reports whether tokens may lie in another order than in their sequences: every modality says
// which of its tensors go with them.
func (m *Model) Dealable() bool {
	for _, x := range m.Modalities {
		if _, ok := x.(Rowed); !ok {
			return false
		}
	}
	return true
}

// classes splits a class of the whole shape into those of the modalities.
func (m *Model) classes(class int32) []int32 {
	out := make([]int32, len(m.Modalities))
	for i, x := range m.Modalities {
		out[i], class = class%x.Classes(), class/x.Classes()
	}
	return out
}

// joint is the class of the whole shape.
func (m *Model) joint(classes []int32) int32 {
	class, step := int64(0), int64(1)
	for i, x := range m.Modalities {
		class += step * int64(classes[i])
		step *= int64(x.Classes())
	}
	if step > math.MaxInt32 {
		panic(fmt.Sprintf("family: the modalities of %s have %d shapes together", m.Family, step))
	}
	return int32(class)
}

// Class is that of a microbatch's shape; 0 is a microbatch of tokens alone. With filled, a modality of which the
// microbatch has nothing gets its least shape, all of it padding, so that every microbatch runs every block.
func (m *Model) Class(in *Inputs, filled bool) int32 {
	out := make([]int32, len(m.Modalities))
	for i, x := range m.Modalities {
		out[i] = x.Class(in)
		f, fills := x.(Filler)
		switch {
		case filled && out[i] == 0:
			out[i] = x.Planned(in.Rows, nil)
		case filled && fills:
			out[i] = f.Fill(out[i])
		}
	}
	return m.joint(out)
}

// Shape is that of a class, for microbatches of rows tokens.
func (m *Model) Shape(rows int, class int32) block.Shape {
	s := block.Shape{Rows: rows}
	for i, c := range m.classes(class) {
		if c == 0 {
			continue
		}
		if s.Dims == nil {
			s.Dims = map[string]int{}
		}
		maps.Copy(s.Dims, m.Modalities[i].Dims(rows, c))
	}
	return s
}

// Planned is the class of a microbatch of the given dimensions, and of the least of each modality that is not 0.
func (m *Model) Planned(rows int, dims map[string]int) int32 {
	out := make([]int32, len(m.Modalities))
	for i, x := range m.Modalities {
		out[i] = x.Planned(rows, dims)
	}
	return m.joint(out)
}

// Tensors are what blocks read of a microbatch beside tokens and labels, padded to a class of shape.
func (m *Model) Tensors(in *Inputs, class int32) map[string]*tensor.Tensor {
	out := map[string]*tensor.Tensor{}
	s := m.Shape(in.Rows, class)
	for _, x := range m.Modalities {
		maps.Copy(out, x.Tensors(in, s))
	}
	return out
}

// Smallest is the shape of a microbatch of rows tokens with the least of every modality: what a record of
// all blocks is made of when only parameters matter.
func (m *Model) Smallest(rows int) block.Shape { return m.Shape(rows, m.Planned(rows, nil)) }

// Absent reports whether a port carries nothing for microbatches of a shape.
func (m *Model) Absent(port string, s block.Shape) bool {
	of := m.Ports[port].Of
	return of != "" && s.Dim(of) == 0
}

// Optional reports whether a port carries nothing for some microbatches.
func (m *Model) Optional(port string) bool { return m.Ports[port].Of != "" }

// portRows is the rows of a port's activation.
func (m *Model) portRows(port string, s block.Shape) int {
	if rows := m.Ports[port].Rows; rows != nil {
		return rows(s)
	}
	return s.Rows
}

// images is the modality of a vision tower.
type images struct {
	v *Vision
	s *Spec
}

// Classes bounds Vision.Class, which has the number of patches above eight bits for the number of frames: a
// hundred and more octaves of the former would not fit into a machine.
func (p images) Classes() int32 { return 1 << 16 }

// TokenTensors implements Rowed.
func (p images) TokenTensors() []string {
	names := []string{"positions3"}
	for k := range p.s.MTP + 1 {
		names = append(names, placesOf(k))
	}
	return names
}

func (p images) Class(in *Inputs) int32 {
	return p.v.Class(in.Images.Patches(), in.Images.Frames())
}

func (p images) Dims(rows int, class int32) map[string]int { return p.v.Shape(rows, class).Dims }

func (p images) Planned(_ int, dims map[string]int) int32 {
	return p.v.Class(max(dims[block.Patches], p.v.Unit()), max(dims[block.Frames], 1))
}

// Tensors are the tensors that the images of a microbatch give a stage. Each further layer for
// prediction takes its features one token later, so it has places of its own.
func (p images) Tensors(in *Inputs, s block.Shape) map[string]*tensor.Tensor {
	out := p.v.Data(&in.Images, s)
	if places := out[placesOf(0)]; places != nil {
		for k := range p.s.MTP {
			out[placesOf(k+1)] = FurtherLayer(places.I32(), in.Cu, k+1)
		}
	}
	out["positions3"] = tensor.Of(tensor.I32, p.v.Positions(in.Rows, in.Cu, &in.Images), in.Rows, 3)
	return out
}
