package grad

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opGrouped, opGroupedDX, opGroupedDW, opLowGrouped, opRounded, opLowError, opGreatest *Op

func init() {
	fuses[kernels.GroupedLinearDW] = true
	opGroupedDX = &Op{Name: "grouped_linear_dx", Kernel: kernels.GroupedLinearDX}
	opGroupedDW = &Op{Name: "grouped_linear_dw", Kernel: kernels.GroupedLinearDW}
	opGrouped = &Op{Name: "grouped_linear", Kernel: kernels.GroupedLinear, VJP: groupedVJP}
	opLowGrouped = &Op{Name: "low_grouped_linear", Kernel: kernels.GroupedLinear, VJP: lowGroupedVJP, Args: 3}
	opLowError = &Op{Name: "low_error", Kernel: kernels.LowError}
	opGreatest = &Op{Name: "greatest", Kernel: kernels.Greatest}
	opRounded = &Op{Name: "rounded", Kernel: kernels.Rounded, Cheap: true}
	opRounded.VJP = func(_ *Tape, _ *Node, dy []*Value, leg func(i int) bool) []*Value {
		if !leg(0) {
			return []*Value{nil, nil, nil}
		}
		return []*Value{dy[0], nil, nil}
	}
}

// GroupedLinear is x·w[i]ᵀ for the rows off[i]:off[i+1] of each group i, and 0 for rows of no group. Shapes:
// x [t k], w [g n k], off [g+1] i32 -> [t n]. w may be sharded over its groups along an axis along which the
// rows have been dispatched to them; along others offsets count the rows of the whole x, so the sharding of
// rows is resolved there, and w may be sharded in its outputs or inputs. Where rows and offsets are shared
// out and groups are not, each member has some rows of every group.
func (t *Tape) GroupedLinear(x, w, off *Value) *Value {
	if len(w.Shape) != 3 || local(t.Mesh, off.Shape, off.Place)[0] != local(t.Mesh, w.Shape, w.Place)[0]+1 {
		panic(fmt.Sprintf("grad: %v offsets of groups for matrices %v", off.Shape, w.Shape))
	}
	w, x, p := t.groupedProduct(w, x, "gnk", "tk", "tn", off, w.Place.Cuts(0))
	at := t.splitK(w, kernels.Attr{})
	return t.one(opGrouped, at, x.DType, []int{x.Shape[0], w.Shape[1]}, p, x, w, off)
}

// LowGrouped is GroupedLinear of operands that are rounded as kernels.Precisions[precision] says, and so are those of
// its gradients, each from the numbers as they are; each group's rows are a matrix of their own. 0 is GroupedLinear.
func (t *Tape) LowGrouped(x, w, off *Value, precision int) *Value {
	if precision == 0 {
		return t.GroupedLinear(x, w, off)
	}
	w, x, p := t.groupedProduct(w, x, "gnk", "tk", "tn", off, w.Place.Cuts(0))
	at := kernels.Attr{I: [4]int{0, precision}}
	low, more := t.rounding(at, t.state(w, precision)), t.noisy(precision, t.state(w, precision))
	return t.one(opLowGrouped, at, x.DType, []int{x.Shape[0], w.Shape[1]}, p,
		append([]*Value{low(x, off, kernels.OperandsForward, 0), low(w, nil, kernels.OperandsForward, 1), off}, more...)...)
}

// rounding makes the first or the second operand of a product as it is multiplied, if the choice has it; more is the
// choice, and what a gradient is drawn by.
func (t *Tape) rounding(at kernels.Attr, more ...*Value) func(x, off *Value, product, operand int) *Value {
	return func(x, off *Value, product, operand int) *Value {
		at.I[0], at.I[2] = product, operand
		return t.one(opRounded, at, x.DType, x.Shape, x.Place, append([]*Value{x, off}, more...)...)
	}
}

// stateGrad is the gradient of what a product's operand of state is made anew by: of a choice errors, of
// delayed scales the greatest magnitudes that each member has seen.
func (t *Tape) stateGrad(at kernels.Attr, x, w, dy, state, off *Value) *Value {
	if !kernels.Precisions[at.I[1]].Delayed {
		return t.lowError(at, x, w, dy, state, off)
	}
	var p Place
	fold := t.leaf(state).Fold
	for m, a := range t.Mesh { // a maximum may be taken over members that have the same
		if a.Fold == fold && a.Size > 1 {
			p[m] = Part{Kind: Partial}
		}
	}
	return t.one(opGreatest, kernels.Attr{}, tensor.F32, state.Shape, p, x, w, dy)
}

// lowError is how far the products of rounded operands are from others, as far as it is known on each
// member: the gradient of a choice.
func (t *Tape) lowError(at kernels.Attr, x, w, dy, choice, off *Value) *Value {
	var p Place
	for m := range t.Mesh {
		for _, v := range []*Value{x, w, dy} {
			if v.Place[m].Kind == Sharded {
				p[m] = Part{Kind: Partial}
			}
		}
	}
	at.I[0] = 0
	return t.one(opLowError, at, tensor.F32, choice.Shape, p, x, w, dy, choice, off)
}

// lowGroupedVJP is the gradient of a linear layer per group whose operands are rounded: rounding passes it on as it is.
func lowGroupedVJP(t *Tape, n *Node, dy []*Value, leg func(i int) bool) []*Value {
	g, at := make([]*Value, len(n.In)), n.Attr
	x, w, off, choice := n.In[0].Node.In[0], n.In[1].Node.In[0], n.In[2], n.In[3]
	at.I[3] = t.site(w)
	groups, low := w.Place.Cuts(0), t.rounding(at, n.In[3:]...)
	if leg(0) {
		w, d, p := t.groupedProduct(w, dy[0], "gnk", "tn", "tk", off, groups)
		g[0] = t.one(opGroupedDX, kernels.Attr{}, d.DType, x.Shape, p, low(d, off, kernels.OperandsDX, 0),
			low(w, nil, kernels.OperandsDX, 1), off)
	}
	if leg(1) {
		d, x, p := t.groupedProduct(dy[0], x, "tn", "tk", "gnk", off, groups)
		g[1] = t.one(opGroupedDW, kernels.Attr{}, tensor.F32, w.Shape, p, low(d, off, kernels.OperandsDW, 0),
			low(x, off, kernels.OperandsDW, 1), off)
		if choice != nil && leg(3) {
			g[3] = t.stateGrad(n.Attr, x, t.to(w, p.dual()), d, choice, off)
		}
	}
	return g
}

// groupedProduct is product for operands of which rows (t) are shared out along the axes of off, and groups
// (g) along some of those.
func (t *Tape) groupedProduct(lead, oth *Value, ll, lo, lout string, off *Value, groups []int) (*Value, *Value, Place) {
	own := off.Place.Cuts(0)
	// at is the placement of an operand along an axis of off
	at := func(letters string, m int) Part {
		if letters[0] == 'g' && !slices.Contains(groups, m) {
			return Part{}
		}
		return Part{Sharded, 0}
	}
	within := func(v *Value, letters string) *Value {
		p := v.Place.dual()
		for m := range p {
			if x := p[m]; x.Kind == Sharded &&
				(letters[x.Axis] == 't' || letters[x.Axis] == 'g') != slices.Contains(own, m) {
				p[m] = Part{}
			}
		}
		for _, m := range own {
			p[m] = at(letters, m)
		}
		return t.to(v, p)
	}
	lead, oth = within(lead, ll), within(oth, lo)
	var pl, po, out Place
	for m := range t.Mesh {
		if slices.Contains(own, m) {
			if pl[m], po[m], out[m] = at(ll, m), at(lo, m), at(lout, m); out[m].Kind == Replicated {
				out[m] = Part{Kind: Partial} // each member has the rows that it holds
			}
		} else {
			pl[m], po[m], out[m] = join(lead.Place[m], oth.Place[m], ll, lo, lout)
		}
	}
	return t.to(lead, pl), t.to(oth, po), out
}

// groupedVJP is the gradient of a linear layer per group of rows, as of experts. It is that of a
// linear layer for each group; off says where the groups begin.
func groupedVJP(t *Tape, n *Node, dy []*Value, leg func(i int) bool) []*Value {
	g := make([]*Value, 3)
	d, x, w, off := dy[0], n.In[0], n.In[1], n.In[2]
	groups := w.Place.Cuts(0)
	if leg(0) {
		w, d, p := t.groupedProduct(w, d, "gnk", "tn", "tk", off, groups)
		g[0] = t.one(opGroupedDX, kernels.Attr{}, d.DType, x.Shape, p, d, w, off)
	}
	if leg(1) {
		d, x, p := t.groupedProduct(d, x, "tn", "tk", "gnk", off, groups)
		g[1] = t.one(opGroupedDW, kernels.Attr{}, tensor.F32, w.Shape, p, d, x, off)
	}
	return g
}
