package grad

import (
	"slices"

	"github.com/lfactor/lfactor/kernels"
)

var (
	opCEBwd = &Op{Name: "linear_ce_bwd", Kernel: kernels.LinearCEBwd}
	opCE    = &Op{Name: "linear_ce", Kernel: kernels.LinearCE}
)

// forwardOnly is the forward f without the nodes that wait for the backward.
func (t *Tape) forwardOnly(f []*Node, late map[*Node]bool) []*Node {
	return slices.DeleteFunc(slices.Clone(f), func(n *Node) bool { return late[n] })
}

// fuseLoss replaces the two gradients of a loss in b, a backward or its first half, by the kernel that computes
// the logits once for both, and, where the loss is late, by the one that computes it too: what the forward f
// makes of it then comes behind that.
func (t *Tape) fuseLoss(f, b []*Node, late map[*Node]bool) (backward []*Node) {
	last := -1
	for k := 0; k < len(b); k++ {
		n := b[k]
		if pairOfCE(b, k) {
			n, k = t.bothGradients(n, b[k+1], late), k+1
			last = len(backward)
		}
		backward = append(backward, n)
	}
	var after []*Node // what the forward made of the losses
	for _, n := range f {
		if late[n] && !lossPart(n.Op) {
			after = append(after, n)
		}
	}
	return slices.Insert(backward, last+1, after...)
}

// pairOfCE tells whether node k and the next are the two gradients of one loss.
func pairOfCE(b []*Node, k int) bool {
	return k+1 < len(b) && b[k].Op == opCEDX && b[k+1].Op == opCEDW && b[k].In[0] == b[k+1].In[0] &&
		b[k].In[1] == b[k+1].In[1]
}

// bothGradients is one node in place of two, which also computes the loss if that is late.
func (t *Tape) bothGradients(dx, dw *Node, late map[*Node]bool) *Node {
	n := &Node{ID: len(t.nodes), Op: opCEBwd, In: dx.In, Out: []*Value{dx.Out[0], dw.Out[0]}, Phase: B,
		Block: dx.Block, Axes: dx.Axes, Acc: dw.Acc, Attr: dx.Attr}
	t.nodes = append(t.nodes, n)
	join := dx.In[3].Node
	if !late[join] {
		return n
	}
	x, w := dx.In[0], dx.In[1]
	blocks, rows, step := kernels.LossWork(x.DType, t.shapeOf(x)[0], t.shapeOf(w)[0])
	work := &Value{ID: t.nval, Name: opCE.Name, Shape: []int{blocks, rows, step}, DType: x.DType, Node: n}
	t.nval++
	n.Op, n.In = opCE, []*Value{x, w, dx.In[2], dx.In[4], dx.In[5]}
	n.Out = append([]*Value{lossOf(join, late).Out[0], work}, n.Out...)
	for seen := range late {
		if lse := join.In[0].Node; seen.Op == opGroupNLL && seen.In[0].Node == join {
			n.Out = append(n.Out, join.Out[0], lse.Out[1])
		}
	}
	return n
}

// sumsInto is which output of a node is the parameter's gradient that it adds to: the last but for losses of rows.
func (n *Node) sumsInto() int {
	if n.Op.Kernel == kernels.LinearCE {
		return 3
	}
	return len(n.Out) - 1
}

// lossOf is the node of the loss whose log-sums join makes.
func lossOf(join *Node, late map[*Node]bool) *Node {
	for n := range late {
		if n.Op == opNLL && n.In[0].Node == join {
			return n
		}
	}
	panic("grad: a loss without its sum")
}

// lossPart tells whether linear_ce stands for such nodes.
func lossPart(o *Op) bool { return o == opLSE || o == opLSEJoin || o == opNLL }

// lateNodes are the nodes of the forward that can wait for the backward: losses whose two gradients are
// computed together, and what is made of their values; none if anything else needs them.
func (t *Tape) lateNodes(f, b []*Node) map[*Node]bool {
	late := map[*Node]bool{}
	own := map[*Node]bool{} // gradients that linear_ce replaces
	for k, n := range b {
		if pairOfCE(b, k) && n.Axes == nil && len(n.In) == 6 {
			join := n.In[3].Node
			late[join], late[join.In[0].Node] = true, true
			own[n], own[b[k+1]] = true, true
		}
	}
	reads := func(n *Node) bool {
		return slices.ContainsFunc(n.In, func(v *Value) bool { return v != nil && late[v.Node] })
	}
	for _, n := range f {
		if late[n] || !reads(n) {
			continue
		}
		inner := slices.ContainsFunc(n.In, func(v *Value) bool {
			return v != nil && late[v.Node] && lossPart(v.Node.Op) && v.Node.Op != opNLL
		})
		if n.Op.Role != compute && n.Op.Role != convert || inner != (n.Op == opNLL || n.Op == opGroupNLL) {
			return nil
		}
		late[n] = true
	}
	if slices.ContainsFunc(b, func(n *Node) bool { return !own[n] && reads(n) }) ||
		slices.ContainsFunc(t.outs, func(p *Port) bool { return late[p.Value.Node] }) {
		return nil
	}
	return late
}
