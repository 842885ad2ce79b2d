package grad

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opGroupNorm, opGroupNormDX, opGroupNormDW, opFrozenNorm, opFrozenNormDX, opResize, opResizeBwd, opPool, opPoolBwd,
	opPad, opPermute *Op

func init() {
	fuses[kernels.GroupNormDW] = true
	opGroupNormDX = &Op{Name: "group_norm_dx", Kernel: kernels.GroupNormDX}
	opGroupNormDW = &Op{Name: "group_norm_dw", Kernel: kernels.GroupNormDW}
	opGroupNorm = &Op{Name: "group_norm", Kernel: kernels.GroupNorm, Cheap: true,
		VJP: normVJP(&opGroupNormDX, &opGroupNormDW)}
	opFrozenNormDX = &Op{Name: "frozen_norm_dx", Kernel: kernels.FrozenNormDX}
	opFrozenNorm = &Op{Name: "frozen_norm", Kernel: kernels.FrozenNorm, Cheap: true, VJP: frozenNormVJP}
	opResizeBwd = &Op{Name: "resize_bwd", Kernel: kernels.ResizeBwd}
	opResize = &Op{Name: "resize", Kernel: kernels.Resize, Cheap: true, VJP: alone(func(t *Tape, n *Node,
		d *Value) *Value {
		x := n.In[0]
		return t.one(opResizeBwd, n.Attr, x.DType, x.Shape, x.Place, d)
	})}
	opPoolBwd = &Op{Name: "pool_bwd", Kernel: kernels.PoolBwd}
	opPool = &Op{Name: "pool", Kernel: kernels.Pool, Cheap: true, VJP: alone(func(t *Tape, n *Node, d *Value) *Value {
		x, in := n.In[0], []*Value{d}
		if n.Attr.I[0] == kernels.MaxPool {
			in = append(in, x)
		}
		return t.one(opPoolBwd, n.Attr, x.DType, x.Shape, x.Place, in...)
	})}
	opPad = &Op{Name: "pad", Kernel: kernels.Pad, Cheap: true}
	opPad.VJP = alone(func(t *Tape, n *Node, d *Value) *Value {
		at, x := n.Attr, n.In[0]
		for i := range len(x.Shape) - 2 {
			w := kernels.WindowOf(at.I[1+i])
			w.Before, w.After = -w.Before, -w.After
			at.I[1+i] = w.Pack()
		}
		return t.one(opPad, at, x.DType, x.Shape, x.Place, d)
	})
	opPermute = &Op{Name: "permute", Kernel: kernels.Permute, Cheap: true}
	opPermute.VJP = alone(func(t *Tape, n *Node, d *Value) *Value {
		order := kernels.Order(n.Attr, len(d.Shape))
		back := make([]int, len(order))
		for i, p := range order {
			back[p] = i
		}
		return t.Permute(d, back...)
	})
}

// alone is the rule of an operation of one operand, whose cotangent comes placed as its result.
func alone(f func(t *Tape, n *Node, d *Value) *Value) func(*Tape, *Node, []*Value, func(int) bool) []*Value {
	return func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
		if !leg(0) {
			return []*Value{nil}
		}
		return []*Value{f(t, n, t.to(dy[0], n.Out[0].Place))}
	}
}

// groupsApart keeps samples sharded, and channels where members have whole groups.
func (t *Tape) groupsApart(x *Value, groups int) *Value {
	last := len(x.Shape) - 1
	x = t.full(x)
	if groups%max(1, t.Members(x.Place.Cuts(last))) != 0 {
		return t.only(x, 0)
	}
	return t.only(x, 0, last)
}

// statsPlace is the placement of statistics [n g] of x.
func statsPlace(x *Value) (p Place) {
	for m, a := range x.Place {
		switch {
		case a.Kind == Sharded && a.Axis == 0:
			p[m] = a
		case a.Kind == Sharded:
			p[m] = Part{Sharded, 1}
		}
	}
	return p
}

// GroupNorm normalises groups of channels of each sample of x [n s… c] over all its places, times w [c] plus
// b [c], which may be nil.
func (t *Tape) GroupNorm(x, w, b *Value, groups int, eps float64) *Value {
	y, _, _ := t.groupNorm(x, w, b, groups, eps)
	return y
}

// groupNorm records the norm over groups of channels of each sample, and returns the statistics
// too, which the gradient needs. rstd and mean have the shape [samples, groups].
func (t *Tape) groupNorm(x, w, b *Value, groups int, eps float64) (y, rstd, mean *Value) {
	if x = t.full(x); len(x.lines()) > 0 && x.Shape[0] == 1 {
		return t.groupNormOfParts(x, w, b, groups, eps)
	}
	x = t.groupsApart(x, groups)
	p := biasPlace(x.Place, len(x.Shape)-1)
	in := []*Value{x, t.to(w, p), nil}
	if b != nil {
		in[2] = t.to(b, p)
	}
	s := spec{[]int{x.Shape[0], groups}, tensor.F32, statsPlace(x)}
	n := t.emit(opGroupNorm, kernels.Attr{F: [2]float64{eps}}, in, spec{x.Shape, x.DType, x.Place}, s, s)
	return n.Out[0], n.Out[1], n.Out[2]
}

// as is x in another shape, whose first and last axes are sharded as x's are.
func (t *Tape) as(x *Value, shape ...int) *Value {
	p := x.Place
	for m := range p {
		if p[m].Kind == Sharded && int(p[m].Axis) == len(x.Shape)-1 {
			p[m].Axis = int8(len(shape) - 1)
		}
	}
	return t.one(opAlias, kernels.Attr{}, x.DType, shape, p, x)
}

// Rows views [n s… c] as rows [n·s… c]; Space views rows as the places of samples again. Samples and
// channels may be sharded, and of one sample the outermost axis of space.
func (t *Tape) Rows(x *Value) *Value {
	rows, c := tensor.Len(x.Shape[:len(x.Shape)-1]), lastOf(x)
	if x = t.full(x); x.Shape[0] != 1 || !t.alike(x.Place.Cuts(1)) {
		return t.as(t.sampled(x), rows, c)
	}
	return t.turned(t.only(x, 1, len(x.Shape)-1), 1, 0, rows, c)
}

// Space views rows [n·s… c] as [n s… c].
func (t *Tape) Space(x *Value, samples int, space ...int) *Value {
	x = t.full(x)
	shape, members := append(append([]int{samples}, space...), lastOf(x)), t.Members(x.Place.Cuts(0))
	if members > 1 && samples == 1 && space[0]%members == 0 && t.alike(x.Place.Cuts(0)) {
		return t.turned(x, 0, 1, shape...)
	}
	if samples%max(1, members) != 0 {
		x = t.only(x, 1)
	}
	return t.as(x, shape...)
}

// FrozenNorm is batch norm of x [n s… c] by statistics [c] that do not learn: (x - mean)/√(var + eps)·w + b.
func (t *Tape) FrozenNorm(x, w, b, mean, variance *Value, eps float64) *Value {
	x = t.full(x)
	p := biasPlace(x.Place, len(x.Shape)-1)
	in := []*Value{x, t.to(w, p), t.to(b, p), t.to(mean, p), t.to(variance, p)}
	var ps Place
	for _, m := range p.Cuts(0) {
		ps[m] = Part{Sharded, 1}
	}
	s := spec{[]int{1, lastOf(x)}, tensor.F32, ps}
	return t.emit(opFrozenNorm, kernels.Attr{F: [2]float64{eps}}, in, spec{x.Shape, x.DType, x.Place}, s, s).Out[0]
}

// frozenNormVJP is the gradient of a norm with fixed statistics, which is a plain scaling for the input.
func frozenNormVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, 5)
	x, w, b, rstd, mean := n.In[0], n.In[1], n.In[2], n.Out[1], n.Out[2]
	d := t.to(dy[0], n.Out[0].Place)
	if leg(0) {
		g[0] = t.one(opFrozenNormDX, n.Attr, x.DType, x.Shape, x.Place, d, w, rstd)
	}
	if leg(1) { // as of one sample with a group for each channel
		one := append([]int{1}, x.Shape...)
		shift := d.Place
		for m := range shift {
			if shift[m].Kind == Sharded {
				shift[m].Axis++
			}
		}
		view := func(v *Value) *Value { return t.one(opAlias, kernels.Attr{}, v.DType, one, shift, v) }
		g[1] = t.rowSum(opGroupNormDW, view(d), w.Shape, view(x), rstd, mean)
	}
	if leg(2) {
		g[2] = t.rowSum(opColSum, d, b.Shape)
	}
	return g
}

// ChannelNorm is x/max(‖x‖, 1e-12)·√c·w over the channels of x [… c]: the norm of Wan's autoencoders. The
// bound stands under the root here, which is the same but where a row is as small as it.
func (t *Tape) ChannelNorm(x, w *Value) *Value {
	return t.RMSNorm(x, w, unitEps/float64(max(1, lastOf(x))))
}

// Resize is x [n s… c] with axes of space of other sizes, by kernels.Nearest or kernels.Bilinear.
func (t *Tape) Resize(x *Value, kind int, size ...int) *Value {
	shape, last := append(append([]int{x.Shape[0]}, size...), lastOf(x)), len(x.Shape)-1
	if len(shape) != len(x.Shape) {
		panic(fmt.Sprintf("grad: %v is resized to %v", x.Shape, size))
	}
	if kind == kernels.Nearest && x.Shape[1] > 0 && size[0]%x.Shape[1] == 0 { // a line becomes whole lines
		x = t.only(x, 0, 1, last)
	} else {
		x = t.sampled(x)
	}
	return t.one(opResize, kernels.Attr{I: [4]int{kind}}, x.DType, shape, x.Place, x)
}

// Pool takes from windows of x [n s… c] what kind says: kernels.MaxPool, MeanPool or MeanIn.
func (t *Tape) Pool(x *Value, kind int, wins ...kernels.Window) *Value {
	x = t.sampled(x)
	at, shape := kernels.Attr{I: [4]int{kind}}, []int{x.Shape[0]}
	for i, w := range wins {
		at.I[1+i] = w.Pack()
		shape = append(shape, w.Out(x.Shape[1+i]))
	}
	return t.one(opPool, at, x.DType, append(shape, lastOf(x)), x.Place, x)
}

// Edge is how many places are put before and behind an axis; negative ones are left out.
type Edge struct{ Before, After int }

// Pad puts zeros around x [n s… c], an edge for each axis of space, or leaves places out.
func (t *Tape) Pad(x *Value, edges ...Edge) *Value {
	keep, at, shape := []int{0, len(x.Shape) - 1}, kernels.Attr{}, append([]int(nil), x.Shape...)
	for i, e := range edges {
		at.I[1+i] = kernels.Window{Stride: 1, Dilation: 1, Before: e.Before, After: e.After}.Pack()
		shape[1+i] += e.Before + e.After
		if e == (Edge{}) {
			keep = append(keep, 1+i)
		}
	}
	x = t.only(x, keep...)
	return t.one(opPad, at, x.DType, shape, x.Place, x)
}

// Permute puts the axes of x in another order: axis i of the result is axis order[i] of x.
func (t *Tape) Permute(x *Value, order ...int) *Value {
	x = t.full(x)
	shape, p := make([]int, len(order)), x.Place
	for i, a := range order {
		shape[i] = x.Shape[a]
		for m := range p {
			if x.Place[m] == (Part{Sharded, int8(a)}) {
				p[m].Axis = int8(i)
			}
		}
	}
	return t.one(opPermute, kernels.PermuteAttr(order), x.DType, shape, p, x)
}

// Reshape is x in another shape of as many elements. Of it stays sharded what both shapes have: axes of one length
// with as many elements before them.
func (t *Tape) Reshape(x *Value, shape ...int) *Value {
	if tensor.Len(shape) != tensor.Len(x.Shape) {
		panic(fmt.Sprintf("grad: %v is no %v", x.Shape, shape))
	}
	var keep []int
	to := map[int]int{}
	for a := range x.Shape {
		for i := range shape {
			if shape[i] == x.Shape[a] && tensor.Len(shape[:i]) == tensor.Len(x.Shape[:a]) && (i == 0) == (a == 0) {
				keep, to[a] = append(keep, a), i
			}
		}
	}
	x = t.only(x, keep...)
	p := x.Place
	for m := range p {
		if p[m].Kind == Sharded {
			p[m].Axis = int8(to[int(p[m].Axis)])
		}
	}
	return t.one(opAlias, kernels.Attr{}, x.DType, shape, p, x)
}
