// Package topology says which rank owns what: ranks, hosts, devices, links and named mesh axes as plain values.
package topology

import (
	"fmt"
	"slices"
	"strings"
)

// Names of mesh axes that plans use. Others are as good: nothing but a plan's reader depends on a name.
const (
	PP           = "pp"            // pipeline parallelism
	DPReplicate  = "dp_replicate"  // data parallelism between groups of replicas that share state (HSDP)
	DP           = "dp"            // data parallelism; ZeRO shards state over it
	CP           = "cp"            // context parallelism: tokens of a sequence
	Ulysses      = "ulysses"       // context parallelism that exchanges tokens for heads in attention
	TP           = "tp"            // tensor parallelism
	EDP          = "edp"           // data parallelism of experts
	EDPReplicate = "edp_replicate" // the same between groups of replicas that share state
	EP           = "ep"            // expert parallelism
	ETP          = "etp"           // tensor parallelism inside an expert
)

// Dim is a named number of ranks, as a mesh is made from.
type Dim struct {
	Name string
	Size int
}

// Axis is one axis of a mesh: rank r has coordinate r/Stride%Size on it.
type Axis struct {
	Name         string
	Size, Stride int
	Fold         int // the mesh, of those folded over the same ranks, that it belongs to
}

// Mesh is the grid of ranks of a run, and further grids folded over the same ranks, whose axes have other
// names. The zero value is one rank.
type Mesh struct{ axes []Axis }

// New makes a mesh; the last dimension varies fastest.
func New(dims ...Dim) Mesh { return Mesh{lay(dims, 0)} }

// Grid is a mesh of pipeline, data and tensor parallelism. Tensor parallelism varies fastest, then data parallelism,
// then the pipeline: Megatron's order, so that the ranks of one tensor-parallel group are neighbours.
func Grid(pp, dp, tp int) Mesh { return New(Dim{PP, pp}, Dim{DP, dp}, Dim{TP, tp}) }

// lay gives dimensions their strides.
func lay(dims []Dim, fold int) []Axis {
	out, stride := make([]Axis, len(dims)), 1
	for i := len(dims) - 1; i >= 0; i-- {
		out[i] = Axis{dims[i].Name, dims[i].Size, stride, fold}
		stride *= dims[i].Size
	}
	return out
}

// Fold lays another mesh over the same ranks, as experts' over attention's: its dimensions share out each
// run of consecutive ranks that is as long as their product, the last varying fastest. That product has to
// divide the number of ranks.
func (m Mesh) Fold(dims ...Dim) (Mesh, error) {
	n, fold := 1, 1
	for _, d := range dims {
		if m.has(d.Name) {
			return m, fmt.Errorf("the axis %s is there already", d.Name)
		}
		n *= d.Size
	}
	for _, a := range m.axes {
		fold = max(fold, a.Fold+1)
	}
	if n < 1 || m.Size()%n != 0 {
		return m, fmt.Errorf("%s has %d ranks, which do not divide the %d of %v", dimsText(dims), n, m.Size(), m)
	}
	return Mesh{append(slices.Clone(m.axes), lay(dims, fold)...)}, nil
}

// dimsText writes the dimensions as "name=size", for errors.
func dimsText(dims []Dim) string {
	var s []string
	for _, d := range dims {
		s = append(s, fmt.Sprintf("%s=%d", d.Name, d.Size))
	}
	return strings.Join(s, " ")
}

// Axes lists the axes of all folds, each fold from its outermost axis on.
func (m Mesh) Axes() []Axis { return m.axes }

// Size is the number of ranks.
func (m Mesh) Size() int {
	n := 1
	for _, a := range m.axes {
		if a.Fold == 0 {
			n *= a.Size
		}
	}
	return n
}

func (m Mesh) has(name string) bool {
	return slices.ContainsFunc(m.axes, func(a Axis) bool { return a.Name == name })
}

// axis is the named axis; a mesh has any other axis with one rank.
func (m Mesh) axis(name string) Axis {
	for _, a := range m.axes {
		if a.Name == name {
			return a
		}
	}
	return Axis{Name: name, Size: 1, Stride: 1}
}

// Len is the number of ranks along an axis, 1 for one that the mesh does not have.
func (m Mesh) Len(name string) int { return m.axis(name).Size }

// At is a rank's coordinate on an axis.
func (m Mesh) At(rank int, name string) int {
	a := m.axis(name)
	return rank / a.Stride % a.Size
}

// Move is the rank with another coordinate on one axis.
func (m Mesh) Move(rank int, name string, to int) int {
	a := m.axis(name)
	return rank + (to-rank/a.Stride%a.Size)*a.Stride
}

// Group lists the ranks that differ from rank on the named axes only, the first of them varying slowest.
func (m Mesh) Group(rank int, names ...string) []int {
	out := []int{rank}
	for _, name := range names {
		var next []int
		for _, r := range out {
			for i := range m.Len(name) {
				next = append(next, m.Move(r, name, i))
			}
		}
		out = next
	}
	return out
}

// data are the axes whose members hold samples of their own.
var data = []string{DPReplicate, DP}

// Replicas is the number of copies of the model, each with its share of the batch.
func (m Mesh) Replicas() int { return m.Len(DPReplicate) * m.Len(DP) }

// Replica is the copy that a rank belongs to.
func (m Mesh) Replica(rank int) int {
	n := 0
	for _, name := range data {
		n = n*m.Len(name) + m.At(rank, name)
	}
	return n
}

// Local numbers a rank within its replica; Global is the rank with that number in another replica.
func (m Mesh) Local(rank int) int {
	n := 0
	for _, a := range m.axes {
		if a.Fold == 0 && !slices.Contains(data, a.Name) {
			n = n*a.Size + m.At(rank, a.Name)
		}
	}
	return n
}

// Global is the rank that has a number within a replica.
func (m Mesh) Global(replica, local int) int {
	rank := 0
	for i := len(m.axes) - 1; i >= 0; i-- {
		a := m.axes[i]
		switch {
		case a.Fold > 0:
		case slices.Contains(data, a.Name):
		default:
			rank += local % a.Size * a.Stride
			local /= a.Size
		}
	}
	for i := len(data) - 1; i >= 0; i-- {
		a := m.axis(data[i])
		rank += replica % a.Size * a.Stride
		replica /= a.Size
	}
	return rank
}

// Name is how messages name a rank.
func (m Mesh) Name(rank int) string {
	var s []string
	for _, a := range m.axes {
		if a.Fold == 0 {
			s = append(s, fmt.Sprintf("%s %d", a.Name, m.At(rank, a.Name)))
		}
	}
	return fmt.Sprintf("rank %d (%s)", rank, strings.Join(s, " "))
}

// String names the axes with their sizes.
func (m Mesh) String() string {
	var s []string
	for _, a := range m.axes {
		s = append(s, fmt.Sprintf("%s=%d", a.Name, a.Size))
	}
	return strings.Join(s, " ")
}
