package grad

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// slots are, in the order in which the parts of a reordered value lie, the places that they come from.
func slots(members, back int) []int {
	dealt := make([]int, 0, 2*members) // the piece in each slot
	for m := range members {
		dealt = append(dealt, m, 2*members-1-m)
	}
	if back == 1 {
		return dealt
	}
	out := make([]int, len(dealt))
	for slot, piece := range dealt {
		out[piece] = slot
	}
	return out
}

// pieces takes a run of this rank's rows, joins such runs, or reorders those of all members.
func (r *Runner) pieces(f *Frame, n *Node) {
	in, out := r.operand(f, n, n.In[0]), n.Out[0].ID
	var parts []*tensor.Tensor
	switch rows := in.Shape[0] / max(1, 2*n.Attr.I[0]); {
	case n.Op.Role == piece:
		at := n.Attr.I[0] * n.Out[0].Local[0]
		f.slots[out] = in.RowSlice(at, at+n.Out[0].Local[0])
		return
	case n.Op.Role == natural:
		for _, slot := range slots(n.Attr.I[0], n.Attr.I[1]) {
			parts = append(parts, in.RowSlice(slot*rows, (slot+1)*rows))
		}
	case n.Attr.I[0] == 1:
		f.slots[out] = in.Retain()
		return
	default:
		for _, v := range n.In[:n.Attr.I[0]] {
			parts = append(parts, r.operand(f, n, v).Retain())
		}
	}
	t := r.alloc(n.Out[0])
	r.run(kernels.Concat, kernels.Attr{}, parts, t)
	for _, p := range parts {
		p.Release()
	}
	f.slots[out] = t
}

// picked is the head, of g, that this rank's query heads use.
func (r *Runner) picked(f *Frame, n *Node, g int) int {
	return f.Trace.Member(r.Pos, n.Axes) * g / f.Trace.Members(n.Axes)
}

// pickGrad puts the gradient of picked heads among zeros, in the place of all heads. g is the
// number of heads before picking.
func (r *Runner) pickGrad(f *Frame, n *Node) {
	out, dy := r.alloc(n.Out[0]), r.operand(f, n, n.In[0])
	g := n.Out[0].Shape[1]
	at := r.picked(f, n, g)
	var parts []*tensor.Tensor
	for _, heads := range []int{at, -1, g - at - 1} {
		switch {
		case heads < 0:
			parts = append(parts, dy.Retain())
		case heads > 0:
			z := r.allocShape("zero heads", dy.DType, []int{dy.Shape[0], heads, dy.Shape[2]})
			r.run(kernels.Fill, kernels.Attr{}, nil, z)
			parts = append(parts, z)
		}
	}
	r.run(kernels.Concat, kernels.Attr{I: [4]int{1}}, parts, out)
	for _, p := range parts {
		p.Release()
	}
	f.slots[n.Out[0].ID] = out
}
