package grad

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opCausalConv, opCausalConvDX, opCausalConvDW, opGates, opGatesBwd, opDelta, opDeltaBwd *Op

func init() {
	opCausalConvDX = &Op{Name: "causal_conv_dx", Kernel: kernels.CausalConvDX}
	opCausalConvDW = &Op{Name: "causal_conv_dw", Kernel: kernels.CausalConvDW}
	opCausalConv = &Op{Name: "causal_conv", Kernel: kernels.CausalConv, Cheap: true, VJP: convVJP}
	opGatesBwd = &Op{Name: "delta_gates_bwd", Kernel: kernels.DeltaGatesBwd}
	opGates = &Op{Name: "delta_gates", Kernel: kernels.DeltaGates, Cheap: true, VJP: gatesVJP}
	opDeltaBwd = &Op{Name: "delta_rule_bwd", Kernel: kernels.DeltaRuleBwd}
	opDelta = &Op{Name: "delta_rule", Kernel: kernels.DeltaRule, VJP: deltaVJP}
}

// Sequence brings rows of tokens [t h·d] together in the order of their sequences, for operations that carry
// something from each token to the next. Axes of context parallelism share out the h heads in place of rows
// where they divide, by an all-to-all; else every member along them has all rows. What is given to one
// operation must have heads that divide alike: h is the number of the least.
func (t *Tape) Sequence(x *Value, h int) *Value {
	x = t.full(x)
	p, n := x.Place, t.Members(x.Place.Cuts(1))
	for m, a := range t.Mesh {
		switch {
		case p[m] == Part{Sharded, 1}:
		case p[m] == Part{Sharded, 0} && a.Context && h%(n*a.Size) == 0:
			p[m], n = Part{Sharded, 1}, n*a.Size
		default:
			p[m] = Part{}
		}
	}
	return t.natural(t.to(x, p))
}

// Residual brings what such operations give back to the order and the members of the residual stream.
func (t *Tape) Residual(x *Value) *Value {
	x = t.deal(x)
	p := x.Place
	for m, a := range t.Mesh {
		if a.Context && p[m] == (Part{Sharded, 1}) {
			p[m] = Part{Sharded, 0}
		}
	}
	return t.OwnTokens(t.to(x, p))
}

// cutHeads gives each member along the axes of context parallelism that cut columns of x its rows of w, of
// which it has those of its other axes. Those axes cut columns within the others, but rows before them
// (Options.within), so the order of changes cannot be left to placements; gathered is the inverse.
func (t *Tape) cutHeads(w, x *Value) *Value {
	var p Place
	for _, m := range x.Place.Cuts(1) {
		if !t.Mesh[m].Context {
			p[m] = Part{Sharded, 0}
		}
	}
	w = t.to(w, p)
	for _, m := range x.Place.Cuts(1) {
		if t.Mesh[m].Context {
			w = t.along(opCut, w, m, Part{Sharded, 0})
		}
	}
	return w
}

// along changes the placement of v on mesh axis m by op, whatever other axes do.
func (t *Tape) along(op *Op, v *Value, m int, to Part) *Value {
	p := v.Place
	p[m] = to
	c := t.one(op, kernels.Attr{}, v.DType, v.Shape, p, v)
	c.Name, c.Node.Axes = v.Name, []int{m}
	return c
}

// Last is the last rows of x; it has no gradient, and serves generation.
func (t *Tape) Last(x *Value, rows int) *Value {
	if !t.NoGrad {
		panic("grad: the last rows of a value have no gradient")
	}
	x = t.only(x, 1)
	shape := append([]int{rows}, x.Shape[1:]...)
	return t.one(opSlice, kernels.Attr{I: [4]int{0, x.Shape[0] - rows}}, x.DType, shape, x.Place, x)
}

// CausalConv is the convolution of each column of x [t c] with its own taps w [c k] along the sequences
// that cu cuts. Rows are in the order of Sequence.
func (t *Tape) CausalConv(x, w, cu *Value) *Value {
	x = t.only(x, 1)
	return t.one(opCausalConv, kernels.Attr{}, x.DType, x.Shape, x.Place, x, t.cutHeads(w, x), cu)
}

// convVJP is the gradient of the short causal convolution, a convolution with the taps in reverse.
// Members with some of the rows have a part of the weights' gradient each.
func convVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, 3)
	x, w, cu := n.In[0], n.In[1], n.In[2]
	d := t.to(dy[0], n.Out[0].Place)
	if leg(0) {
		g[0] = t.one(opCausalConvDX, kernels.Attr{}, x.DType, x.Shape, x.Place, d, w, cu)
	}
	if leg(1) {
		p := w.Place
		for _, m := range x.Place.Cuts(0) { // each member has some of the rows
			p[m] = Part{Kind: Partial}
		}
		g[1] = t.one(opCausalConvDW, kernels.Attr{}, tensor.F32, w.Shape, p, d, x, cu)
	}
	return g
}

// DeltaGates gives the logarithm of how much of its state each head keeps, and how much it writes, in
// float32 [t n]: from a and b [t n], and from decay and bias [n].
func (t *Tape) DeltaGates(a, b, decay, bias *Value) (g, beta *Value) {
	a = t.full(a)
	b = t.to(b, a.Place)
	var p Place
	for _, m := range a.Place.Cuts(1) {
		p[m] = Part{Sharded, 0}
	}
	s := spec{a.Shape, tensor.F32, a.Place}
	n := t.emit(opGates, kernels.Attr{}, []*Value{a, b, t.to(decay, p), t.to(bias, p)}, s, s)
	return n.Out[0], n.Out[1]
}

// gatesVJP is the gradient of the gates of the delta rule. The kernel gives those of the two
// activations; the others follow by sums over the rows.
func gatesVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, 4)
	a, decay, bias := n.In[0], n.In[2], n.In[3]
	place := n.Out[0].Place
	t.phase = I
	dg, dbeta := t.to(dy[0], place), t.to(dy[1], place)
	s := spec{a.Shape, a.DType, place}
	b := t.emit(opGatesBwd, kernels.Attr{}, []*Value{dg, dbeta, a, n.In[1], decay, bias}, s, s)
	copy(g, b.Out)
	if leg(2) { // g is linear in the factor that decay is the logarithm of
		g[2] = t.rowSum(opColSum, t.one(opMul, kernels.Attr{}, tensor.F32, a.Shape, place, dg, n.Out[0]), decay.Shape)
	}
	if leg(3) {
		g[3] = t.rowSum(opColSum, b.Out[0], bias.Shape)
	}
	return g
}

// DeltaRule is the gated delta rule along the sequences that cu cuts: q, k [t h d], v [t n e], g and beta
// [t n] -> [t n e]. Rows are in the order of Sequence.
func (t *Tape) DeltaRule(q, k, v, g, beta, cu *Value, eps float64) *Value {
	q = t.only(q, 1)
	k, v = t.to(k, q.Place), t.to(v, q.Place)
	g, beta = t.to(g, q.Place), t.to(beta, q.Place)
	return t.one(opDelta, kernels.Attr{F: [2]float64{eps}}, v.DType, v.Shape, q.Place, q, k, v, g, beta, cu)
}

// deltaVJP is the gradient of the delta rule: one kernel gives it for queries, keys, values and
// both gates, because they share the pass back through the states.
func deltaVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, 6)
	t.phase = I
	var out []spec
	for _, v := range n.In[:5] {
		out = append(out, spec{v.Shape, v.DType, v.Place})
	}
	in := append([]*Value{t.to(dy[0], n.Out[0].Place)}, n.In...)
	copy(g, t.emit(opDeltaBwd, n.Attr, in, out...).Out)
	return g
}
