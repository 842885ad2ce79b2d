package grad

import (
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opJoinHeads, opJoinHeadsBwd *Op

func init() {
	opJoinHeadsBwd = &Op{Name: "join_heads_bwd", Kernel: kernels.JoinHeadsBwd}
	opJoinHeads = &Op{Name: "join_heads", Kernel: kernels.JoinHeads, Cheap: true, VJP: joinHeadsVJP}
}

// JoinHeads puts a part that all heads share before each head's own: shared [t 1 r], each [t h n] -> [t h r+n].
func (t *Tape) JoinHeads(shared, each *Value) *Value {
	each = t.only(each, 0, 1)
	p := each.Place
	for _, m := range p.Cuts(1) {
		p[m] = Part{}
	}
	shared = t.to(shared, p)
	shape := []int{each.Shape[0], each.Shape[1], shared.Shape[2] + each.Shape[2]}
	return t.one(opJoinHeads, kernels.Attr{}, each.DType, shape, each.Place, shared, each)
}

// joinHeadsVJP is the gradient of putting one shared row before the row of each head. The shared
// row has the sum over heads, which is partial where members have some of the heads.
func joinHeadsVJP(t *Tape, n *Node, dy []*Value, leg func(i int) bool) []*Value {
	shared, each := n.In[0], n.In[1]
	if !leg(0) && !leg(1) {
		return make([]*Value, 2)
	}
	t.phase = I
	sum := shared.Place
	for _, m := range each.Place.Cuts(1) { // each member has some of the heads
		sum[m] = Part{Kind: Partial}
	}
	return t.emit(opJoinHeadsBwd, n.Attr, []*Value{t.to(dy[0], n.Out[0].Place)},
		spec{shared.Shape, shared.DType, sum}, spec{each.Shape, each.DType, each.Place}).Out
}

var opHeadLinear, opHeadLinearT, opColumns, opFill *Op

func init() {
	opHeadLinear = &Op{Name: "head_linear", Kernel: kernels.GroupedLinear, VJP: headLinearVJP(false)}
	opHeadLinearT = &Op{Name: "head_linear_t", Kernel: kernels.GroupedLinearDX, VJP: headLinearVJP(true)}
	opFill = &Op{Name: "fill", Kernel: kernels.Fill}
	opColumns = &Op{Name: "columns", Kernel: kernels.Slice, VJP: columnsVJP}
}

// HeadLinear is x[:,i]·w[i]ᵀ for each head i: x [t h k], w [h n k] -> [t h n].
func (t *Tape) HeadLinear(x, w *Value) *Value {
	w, x, p := t.product(w, x, "hnk", "thk", "thn")
	return t.one(opHeadLinear, kernels.Attr{}, x.DType, []int{x.Shape[0], x.Shape[1], w.Shape[1]}, p, x, w, nil)
}

// HeadLinearT is x[:,i]·w[i] for each head i: x [t h n], w [h n k] -> [t h k].
func (t *Tape) HeadLinearT(x, w *Value) *Value {
	w, x, p := t.product(w, x, "hnk", "thn", "thk")
	return t.one(opHeadLinearT, kernels.Attr{}, x.DType, []int{x.Shape[0], x.Shape[1], w.Shape[2]}, p, x, w, nil)
}

// headLinearVJP is the gradient of HeadLinear, or of HeadLinearT, each of which gives the other's by x.
func headLinearVJP(turned bool) func(*Tape, *Node, []*Value, func(int) bool) []*Value {
	return func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
		g := make([]*Value, 3)
		d, x, w := dy[0], n.In[0], n.In[1]
		op, in, out := opHeadLinearT, "thk", "thn"
		if turned {
			op, in, out = opHeadLinear, out, in
		}
		if leg(0) {
			w, d, p := t.product(w, d, "hnk", out, in)
			g[0] = t.one(op, kernels.Attr{}, d.DType, x.Shape, p, d, w, nil)
		}
		if leg(1) {
			if turned { // the rows of w belong to x
				d, x = x, d
				out, in = in, out
			}
			d, x, p := t.product(d, x, out, in, "hnk")
			g[1] = t.one(opGroupedDW, kernels.Attr{}, tensor.F32, w.Shape, p, d, x, nil)
		}
		return g
	}
}

// Columns are n columns of x from one on: those of its last axis, which is brought together.
func (t *Tape) Columns(x *Value, from, n int) *Value {
	last := len(x.Shape) - 1
	var others []int
	for i := range last {
		others = append(others, i)
	}
	x = t.only(x, others...)
	shape := append([]int(nil), x.Shape...)
	shape[last] = n
	return t.one(opColumns, kernels.Attr{I: [4]int{last, from}}, x.DType, shape, x.Place, x)
}

// columnsVJP puts zeros around the gradient of some columns.
func columnsVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	if !leg(0) {
		return []*Value{nil}
	}
	x, y := n.In[0], n.Out[0]
	axis, from := n.Attr.I[0], n.Attr.I[1]
	d := t.to(dy[0], y.Place)
	parts := []*Value{d}
	zeros := func(n int) []*Value {
		if n == 0 {
			return nil
		}
		shape := append([]int(nil), x.Shape...)
		shape[axis] = n
		return []*Value{t.one(opFill, kernels.Attr{}, x.DType, shape, x.Place)}
	}
	parts = slices.Concat(zeros(from), parts, zeros(x.Shape[axis]-from-y.Shape[axis]))
	return []*Value{t.one(opConcat, kernels.Attr{I: [4]int{axis}}, x.DType, x.Shape, x.Place, parts...)}
}

// OfHeads views the weight w [h·n k] of heads as [h n k].
func (t *Tape) OfHeads(w *Value, n int) *Value {
	w = t.only(w, 0)
	return t.one(opAlias, kernels.Attr{}, w.DType, []int{w.Shape[0] / n, n, w.Shape[1]}, w.Place, w)
}
