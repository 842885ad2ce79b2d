package grad

import (
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// What members do with one picture of which each has some lines, beside convolutions (ops_halo.go).

var opGroupMoments, opGroupJoin, opGroupScale, opGroupScaleDX *Op

func init() {
	opGroupMoments = &Op{Name: "group_moments", Kernel: kernels.GroupMoments, Cheap: true}
	opGroupJoin = &Op{Name: "group_join", Kernel: kernels.GroupJoin, Cheap: true}
	opGroupScaleDX = &Op{Name: "group_scale_dx", Kernel: kernels.GroupScaleDX}
	opGroupScale = &Op{Name: "group_scale", Kernel: kernels.GroupScale, Cheap: true, VJP: groupScaleVJP}
}

// lines are the mesh axes over which axes of space of x [n s… c] are shared out.
func (v *Value) lines() (axes []int) {
	for a := 1; a < len(v.Shape)-1; a++ {
		axes = append(axes, v.Place.Cuts(a)...)
	}
	return axes
}

// apart brings lines of x [n s… c] together over axes along which the weights w are sharded, which their
// product would do once their halos lie beside them.
func (t *Tape) apart(x, w *Value) *Value {
	for _, m := range x.lines() {
		if w.Place[m].Kind == Sharded {
			return t.sampled(x)
		}
	}
	return x
}

// alike reports whether mesh axes cut any tensor axis in the same order: those of context parallelism cut
// heads and lines after others, and rows before (within).
func (t *Tape) alike(axes []int) bool {
	for _, m := range axes {
		if t.Mesh[m].Context != t.Mesh[axes[0]].Context {
			return false
		}
	}
	return true
}

// turned is x in another shape of the same storage on every member, where what was sharded along one axis is
// along another, and the last axis stays the last.
func (t *Tape) turned(x *Value, from, to int, shape ...int) *Value {
	p := x.Place
	for m := range p {
		switch {
		case p[m].Kind != Sharded:
		case int(p[m].Axis) == from:
			p[m].Axis = int8(to)
		case int(p[m].Axis) == len(x.Shape)-1:
			p[m].Axis = int8(len(shape) - 1)
		}
	}
	return t.one(opAlias, kernels.Attr{}, x.DType, shape, p, x)
}

// Frames views clips x [n t h w c] as pictures [n·t h w c]. Members keep the lines that they have.
func (t *Tape) Frames(x *Value) *Value {
	s := x.Shape
	x = t.only(t.full(x), 0, 2, len(s)-1)
	return t.turned(x, 2, 1, append([]int{s[0] * s[1]}, s[2:]...)...)
}

// Clips views pictures x [n·t h w c] as n clips [n t h w c]. Members keep the lines that they have.
func (t *Tape) Clips(x *Value, n int) *Value {
	s, keep := x.Shape, []int{1, len(x.Shape) - 1}
	if x = t.full(x); n%max(1, t.Members(x.Place.Cuts(0))) == 0 {
		keep = append(keep, 0)
	}
	return t.turned(t.only(x, keep...), 1, 2, append([]int{n, s[0] / n}, s[1:]...)...)
}

// CutsLines tells whether members of context parallelism have lines of their own of so many.
func (t *Tape) CutsLines(n int) bool { return t.ofLines(n) != Place{} }

// SharesLines has members of a mesh axis share out lines, and gather keys and values for them, as those of context
// parallelism do, until undo is called: for what is computed alike on all of them, and through which no gradient goes.
func (t *Tape) SharesLines(axis string) (undo func()) {
	m, own := t.Axis(axis), t.Mesh
	if m < 0 || own[m].Size == 1 || own[m].Context {
		return func() {}
	}
	t.Mesh = slices.Clone(own)
	t.Mesh[m].Context = true
	return func() { t.Mesh = own }
}

// CutLines gives members those lines of a whole value, along an axis.
func (t *Tape) CutLines(x *Value, axis int) *Value {
	p := t.ofLines(x.Shape[axis])
	for m := range p {
		if p[m].Kind == Sharded {
			p[m].Axis = int8(axis)
		}
	}
	return t.to(t.full(x), p)
}

// groupNormOfParts is groupNorm of one sample x [1 s… c] of which members have parts: the moments of all of
// them are brought together, and each norms its own.
func (t *Tape) groupNormOfParts(x, w, b *Value, groups int, eps float64) (y, rstd, mean *Value) {
	last := len(x.Shape) - 1
	if groups%max(1, t.Members(x.Place.Cuts(last))) != 0 {
		x = t.only(x, upTo(last)...)
	}
	p := biasPlace(x.Place, last)
	var part, whole Place
	for _, m := range x.lines() {
		part[m] = Part{Sharded, 0}
	}
	for _, m := range x.Place.Cuts(last) {
		part[m], whole[m] = Part{Sharded, 1}, Part{Sharded, 1}
	}
	s := spec{[]int{t.Members(x.lines()), groups}, tensor.F32, part}
	n := t.emit(opGroupMoments, kernels.Attr{}, []*Value{x}, s, s)
	s = spec{[]int{1, groups}, tensor.F32, whole}
	n = t.emit(opGroupJoin, kernels.Attr{F: [2]float64{eps}}, []*Value{t.to(n.Out[0], whole), t.to(n.Out[1],
		whole)}, s, s)
	rstd, mean = n.Out[0], n.Out[1]
	in := []*Value{x, t.to(w, p), nil, rstd, mean}
	if b != nil {
		in[2] = t.to(b, p)
	}
	return t.one(opGroupScale, kernels.Attr{}, x.DType, x.Shape, x.Place, in...), rstd, mean
}

// groupScaleVJP is the gradient of that norm: what its statistics take back of every place are sums of
// channels over all of them, which are those of weights and bias too.
func groupScaleVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, 5)
	x, w, b, rstd, mean := n.In[0], n.In[1], n.In[2], n.In[3], n.In[4]
	d := t.to(dy[0], n.Out[0].Place)
	through := leg(0)
	if through || leg(1) {
		g[1] = t.rowSum(opGroupNormDW, d, w.Shape, x, rstd, mean)
	}
	if through || b != nil && leg(2) {
		g[2] = t.rowSum(opColSum, d, w.Shape)
	}
	if through && leg(0) {
		places := kernels.Attr{I: [4]int{tensor.Len(x.Shape[1 : len(x.Shape)-1])}}
		g[0] = t.one(opGroupScaleDX, places, x.DType, x.Shape, x.Place, d, x, w, rstd, mean, t.full(g[1]), t.full(g[2]))
		for i := 1; i <= 2; i++ { // they are read, and so not made where gradients are added up
			g[i] = t.one(opAlias, kernels.Attr{}, tensor.F32, g[i].Shape, g[i].Place, g[i])
		}
	}
	if b == nil {
		g[2] = nil
	}
	return g
}
