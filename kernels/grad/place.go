package grad

import (
	"fmt"
	"slices"
	"strings"
)

// Kind says how the members of one mesh axis hold one logical tensor.
type Kind uint8

// The placements on one mesh axis: replicated, sharded along a tensor axis, or partial (a sum over the members is due).
const (
	Replicated Kind = iota
	Sharded
	Partial
)

// Part is the placement on one mesh axis; Axis is the tensor axis of Sharded.
type Part struct {
	Kind Kind
	Axis int8
}

// MaxAxes bounds the mesh axes that one tape may see: those of all meshes folded over its ranks.
const MaxAxes = 10

// Place is a placement on every mesh axis of the tape; it is comparable. Where several mesh axes shard one
// tensor axis, the tensor is cut by the outermost of them first.
type Place [MaxAxes]Part

// dual is the placement a cotangent must have to be used with a value placed p: a partial value takes a replicated one.
func (p Place) dual() Place {
	for i := range p {
		if p[i].Kind == Partial {
			p[i] = Part{}
		}
	}
	return p
}

// partial tells whether the value is on some axis a sum whose parts lie on several members.
func (p Place) partial() bool {
	for _, x := range p {
		if x.Kind == Partial {
			return true
		}
	}
	return false
}

// On is the placement on one mesh axis.
func (p Place) On(m int) Part { return p[m] }

// Sums lists the mesh axes over which the value is partial, outermost first.
func (p Place) Sums() (out []int) {
	for m, x := range p {
		if x.Kind == Partial {
			out = append(out, m)
		}
	}
	return
}

// Cuts lists the mesh axes that shard a tensor axis, outermost first.
func (p Place) Cuts(axis int) (out []int) {
	for m, x := range p {
		if x == (Part{Sharded, int8(axis)}) {
			out = append(out, m)
		}
	}
	return
}

// String prints R, S(axis) or P for each mesh axis.
func (p Place) String() string {
	var s []string
	for _, x := range p {
		switch x.Kind {
		case Replicated:
			s = append(s, "R")
		case Sharded:
			s = append(s, fmt.Sprintf("S%d", x.Axis))
		case Partial:
			s = append(s, "P")
		}
	}
	return strings.Join(s, ",")
}

// MeshAxis is one axis of the mesh as the tape sees it. Axes are listed from the outermost on: where two of
// them shard one tensor axis, the earlier one cuts first.
type MeshAxis struct {
	Name string // "dp", "cp", "tp", "ep" …
	Size int    // ranks along it
	// Fold numbers the meshes that are folded over the same ranks. A parameter lies on the axes of one fold
	// and is replicated over them unless it is sharded; an activation may use those of every fold.
	Fold int
	// Data marks an axis whose members hold samples of their own: the tape never moves an activation along
	// it, and the gradient of each parameter of the same fold is a sum over it.
	Data bool
	// Zero marks an axis, of data or of tokens, over which parameters or gradients may be sharded by
	// rows (Options.ShardParams, ShardGrads).
	Zero bool
	// Rows marks an axis over which the residual stream is sharded by tokens.
	Rows bool
	// Context marks such an axis over which attention leaves its queries sharded (context parallelism). It gathers keys
	// and values, or with Ring has them go round, or with Exchange brings all rows of some heads together (Ulysses).
	Context, Ring, Exchange bool
	// Zigzag marks a context axis over which tokens are dealt out in two runs of rows each, the first from the front of
	// a sequence and the second from its back, so that causal attention is as much work on every member.
	Zigzag bool
}

// Names of axes: TP is that of tensor parallelism, on which Tape.Param and Tape.Table shard; a parameter that
// EP cuts along its first axis has a row for each expert of its block.
const (
	TP = "tp"
	EP = "ep"
)

// Axis is the index of a mesh axis, -1 where the tape has none of that name.
func (o *Options) Axis(name string) int {
	for m, a := range o.Mesh {
		if a.Name == name {
			return m
		}
	}
	return -1
}

// Size is the number of ranks along a mesh axis, 1 where the tape has none of that name.
func (o *Options) Size(name string) int {
	if m := o.Axis(name); m >= 0 {
		return o.Mesh[m].Size
	}
	return 1
}

// ZeroAxes lists the axes of a fold over which parameters' rows may be sharded, outermost first.
func (o *Options) ZeroAxes(fold int) (out []int) {
	for m, a := range o.Mesh {
		if a.Zero && a.Size > 1 && a.Fold == fold {
			out = append(out, m)
		}
	}
	return
}

// Members is the number of ranks along several mesh axes.
func (o *Options) Members(axes []int) int {
	n := 1
	for _, m := range axes {
		n *= o.Mesh[m].Size
	}
	return n
}

// Member is the place of a rank with coordinates pos among the ranks along several mesh axes, the last
// axis varying fastest.
func (o *Options) Member(pos, axes []int) int {
	at := 0
	for _, m := range axes {
		at = at*o.Mesh[m].Size + pos[m]
	}
	return at
}

// rows is the placement of values that hold n rows of the residual stream: sharded over tokens on the axes
// marked Rows, but for those listed, and for those that do not divide them, as tokens of captions and
// patches of an image may have it.
func (o *Options) rows(n int, but []int) (p Place) {
	for m, a := range o.Mesh {
		if a.Rows && a.Size > 1 && !slices.Contains(but, m) && n%a.Size == 0 {
			p[m] = Part{Sharded, 0}
			n /= a.Size
		}
	}
	return
}

// local is the shape on one rank of a value of the given global shape and placement. Rows of a table that do not divide
// are shared out in equal numbers rounded up, so that the last ranks have rows of padding, which belong to no token.
func local(mesh []MeshAxis, shape []int, p Place) []int {
	out := append([]int(nil), shape...)
	for m, ax := range mesh {
		if p[m].Kind == Sharded {
			n := &out[p[m].Axis]
			*n = (*n + ax.Size - 1) / ax.Size
		}
	}
	return out
}

// next is the first change on the way from placement v to p: a mesh axis and what it becomes there; ok is false if
// none is left. Outer axes change first. One that would change how a tensor axis is cut while an inner one still shards
// it waits until that one has gathered it, the innermost first: otherwise the rows would come out in another order.
// One that is to cut what an outer one still cuts, and will not, waits for that.
func (o *Options) next(v, p Place) (m int, to Part, ok bool) {
	waits := -1
	for m := range o.Mesh {
		if o.Mesh[m].Size == 1 || v[m] == p[m] {
			continue
		}
		if o.outer(v, p, m) {
			waits = m
			continue
		}
		return o.innermost(v, m, p[m])
	}
	if waits < 0 {
		return 0, Part{}, false
	}
	return o.innermost(v, waits, Part{}) // two wait for each other: one gathers first
}

// innermost is a change of m, or of the axis that has to gather before it.
func (o *Options) innermost(v Place, m int, to Part) (int, Part, bool) {
	if in := o.inner(v, m, to); in >= 0 {
		return o.innermost(v, in, Part{})
	}
	return m, to, true
}

// inner is the innermost axis within mesh axis m that shards a tensor axis which the change of m to the
// given part cuts anew, or -1.
func (o *Options) inner(v Place, m int, to Part) int {
	for in := len(o.Mesh) - 1; in >= 0; in-- {
		if x := v[in]; in != m && x.Kind == Sharded && (x == v[m] || x == to) && o.within(in, m, int(x.Axis)) {
			return in
		}
	}
	return -1
}

// outer reports whether a mesh axis that m is within cuts the tensor axis that m is to cut, or will, and is
// itself to change.
func (o *Options) outer(v, p Place, m int) bool {
	for out := range o.Mesh {
		if out == m || p[m].Kind != Sharded || v[out] == p[out] || !o.within(m, out, int(p[m].Axis)) {
			continue
		}
		cuts := func(x Part) bool { return x.Kind == Sharded && x.Axis == p[m].Axis }
		if cuts(v[out]) || cuts(p[out]) {
			return true
		}
	}
	return false
}

// within reports whether mesh axis in cuts a tensor axis after mesh axis m. Heads and widths are cut by
// parameters first, and their parts by axes that exchange rows for heads.
func (o *Options) within(in, m, axis int) bool {
	if axis > 0 && o.Mesh[in].Context != o.Mesh[m].Context {
		return o.Mesh[in].Context
	}
	return in > m
}
