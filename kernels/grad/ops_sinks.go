package grad

import (
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opSink, opSinkKept, opSinkBwd, opBounded, opBoundedBwd, opGroupIDs, opGroupBias, opGroupBiasDW *Op

func init() {
	fuses[kernels.AttentionSinkBwd] = true
	opSinkBwd = &Op{Name: "attention_sink_bwd", Kernel: kernels.AttentionSinkBwd}
	opSinkKept = &Op{Name: "attention_sink", Kernel: kernels.AttentionSink, Args: 3}
	opSink = &Op{Name: "attention_sink", Kernel: kernels.AttentionSink, Args: 3, VJP: sinkVJP}
	opBoundedBwd = &Op{Name: "bounded_glu_bwd", Kernel: kernels.BoundedGLUBwd}
	opBounded = &Op{Name: "bounded_glu", Kernel: kernels.BoundedGLU, Cheap: true,
		VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
			leg(0)
			s := spec{n.In[0].Shape, n.In[0].DType, n.Out[0].Place}
			return t.emit(opBoundedBwd, n.Attr, []*Value{t.to(dy[0], n.Out[0].Place), n.In[0], n.In[1]}, s, s).Out
		}}
	opGroupIDs = &Op{Name: "group_ids", Kernel: kernels.GroupIDs, Args: 1, Cheap: true}
	opGroupBiasDW = &Op{Name: "group_bias_dw", Kernel: kernels.EmbedDW}
	opGroupBias = &Op{Name: "group_bias", Kernel: kernels.Embed, Cheap: true, VJP: groupBiasVJP}
}

// sinks brings logits of heads [1 h] to the heads that members have of q.
func (t *Tape) sinks(sink, q *Value) *Value {
	var p Place
	for _, m := range q.Place.Cuts(1) {
		p[m] = Part{Sharded, 1}
	}
	return t.to(sink, p)
}

// sunk gives attention and its sums with a further logit for each head. The gradient goes past it, with its results,
// to attention's operands: with a list of them it is this node's, and at are attention's attributes.
func (t *Tape) sunk(at kernels.Attr, o, lse, sink *Value, operands []*Value) *Node {
	op := opSinkKept
	if operands != nil {
		op = opSink
	}
	return t.emit(op, at, append([]*Value{o, lse, sink}, operands...),
		spec{o.Shape, o.DType, o.Place}, spec{lse.Shape, tensor.F32, lse.Place})
}

// sinkVJP has attention's operands behind its own.
func sinkVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, len(n.In))
	d, in := t.to(dy[0], n.Out[0].Place), n.In[3:]
	if leg(3) || leg(4) || leg(5) {
		t.phase = I
		b := t.emit(opAttnBwd, n.Attr, append([]*Value{d, in[0], in[1], in[2], n.Out[0], n.Out[1]}, in[3:]...),
			spec{in[0].Shape, in[0].DType, in[0].Place}, spec{in[1].Shape, in[1].DType, in[1].Place},
			spec{in[2].Shape, in[2].DType, in[2].Place})
		copy(g[3:], b.Out)
	}
	if leg(2) {
		g[2] = t.sinkGrad(d, n.Out[0], n.Out[1], n.In[2])
	}
	return g
}

// sinkGrad is the gradient of logits of heads; rows that are shared out give a partial one.
func (t *Tape) sinkGrad(d, y, all, sink *Value) *Value {
	p := sink.Place
	for _, m := range y.Place.Cuts(0) {
		p[m] = Part{Kind: Partial}
	}
	return t.one(opSinkBwd, kernels.Attr{}, tensor.F32, sink.Shape, p, d, y, all, sink)
}

// BoundedGLU is a·sigmoid(slope·a)·(b+1), elementwise, of a = min(g, most) and b = u within most of 0.
func (t *Tape) BoundedGLU(g, u *Value, most, slope float64) *Value {
	g, u = t.full(g), t.full(u)
	return t.one(opBounded, kernels.Attr{F: [2]float64{most, slope}}, g.DType, g.Shape, g.Place, g, t.to(u, g.Place))
}

// GroupBias adds to each row of x [t n] the row of bias [g n] that is its group's: rows off[i]:off[i+1] are
// of group i, as for GroupedLinear, which x comes from. Along an axis on which x is partial every member has the
// whole bias, and the first one adds it to its part of the sum, as with a bias of Linear.
func (t *Tape) GroupBias(x, bias, off *Value) *Value {
	if due(x) {
		return t.ofTerms(x, func(i int, v *Value) *Value {
			if i > 0 {
				return v
			}
			return t.GroupBias(v, bias, off)
		})
	}
	own, rows, want, sum := off.Place.Cuts(0), Place{}, bias.Place, Place{}
	var parts []int
	for m := range t.Mesh {
		switch {
		case slices.Contains(own, m):
			rows[m], sum[m] = Part{Sharded, 0}, Part{Sharded, 0}
		case x.Place[m].Kind == Partial:
			want[m], sum[m], parts = Part{}, x.Place[m], append(parts, m)
		default:
			want[m], sum[m] = x.Place[m], x.Place[m]
		}
	}
	ids := t.one(opGroupIDs, kernels.Attr{}, tensor.I32, x.Shape[:1], rows, off, x)
	b := t.one(opGroupBias, kernels.Attr{}, x.DType, x.Shape, sum, ids, t.to(bias, want))
	b.Node.Axes = parts // rows of all members but the first lie behind all groups, and get 0
	return t.Add(x, b)
}

// groupBiasVJP is the gradient of a bias per group of rows: the sum over each group, found by the
// number of the group that each row has. Members of a partial sum have all of it, the same to the bit.
func groupBiasVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, 2)
	if !leg(1) {
		return g
	}
	ids, bias := n.In[0], n.In[1]
	p := bias.Place
	for _, m := range ids.Place.Cuts(0) {
		if p[m].Kind != Sharded { // each member has some rows of every group
			p[m] = Part{Kind: Partial}
		}
	}
	g[1] = t.one(opGroupBiasDW, kernels.Attr{}, tensor.F32, bias.Shape, p, t.to(dy[0], n.Out[0].Place.dual()), ids)
	return g
}
