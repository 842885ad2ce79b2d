package grad

import "github.com/lfactor/lfactor/kernels/tensor"

// A sum that every member needs is made in two communications where the members are more than two: each sums a part of
// the rows, and then all get all parts. So a member sends 2(n-1)/n of the tensor, as in a ring, and not n-1 times as
// much. Each element is the sum of the same terms in the order of the members either way, and has the same bits.

// scatterGather replaces such communications by two.
// In the words of the field: all-gather, reduce-scatter.
func (t *Tape) scatterGather() {
	nodes := t.nodes
	t.nodes = nil
	for _, n := range nodes {
		if t.halves(n) {
			t.place(t.firstOf(n))
		}
		t.place(n)
	}
}

// halves reports whether a communication is made in two.
func (t *Tape) halves(n *Node) bool {
	if n.Op.Role != convert {
		return false
	}
	m := n.Axes[0]
	in, out, size := n.In[0], n.Out[0], t.Mesh[m].Size
	if in.Place[m].Kind != Partial || out.Place[m].Kind != Replicated || size <= 2 || out.Ragged {
		return false
	}
	shape := local(t.Mesh, out.Shape, out.Place)
	return len(shape) > 0 && shape[0]%size == 0 && tensor.Len(shape)*out.DType.Size() >= t.SumWhole
}

// firstOf is the communication by which each member sums a part of the rows; n then gathers the parts.
func (t *Tape) firstOf(n *Node) *Node {
	part := *n.Out[0]
	part.ID, t.nval = t.nval, t.nval+1
	part.Place[n.Axes[0]] = Part{Sharded, 0}
	first := &Node{Op: n.Op, In: n.In, Out: []*Value{&part}, Attr: n.Attr, Phase: n.Phase, Block: n.Block,
		Axes: n.Axes, Clone: n.Clone}
	part.Node, part.Exported, part.Kept = first, false, false
	n.In = []*Value{&part}
	return first
}
