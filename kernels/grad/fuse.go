package grad

import (
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// fuse makes elementwise operations epilogues of the product that they read, where no communication lies between: the sum with a
// residual, the gate of a SwiGLU, an activation, the rotation of queries and keys, and their gradients.
func fuse(ns []*Node) []*Node {
	at := map[*Node]int{} // places of nodes since the last communication
	behind := map[*Node]*Node{}
	then := map[*Node][]*Node{}
	for i, n := range ns {
		if n.Op.comm() {
			clear(at)
			continue
		}
		if p := productOf(n, at); p != nil {
			then[p], behind[n] = append(then[p], n), p
		}
		at[n] = i
	}
	var out []*Node
	for _, n := range ns {
		if t := then[n]; t != nil { // the node stays as it is in the lists of other phases
			with := *n
			with.Then = t
			n = &with
		}
		if behind[n] == nil {
			out = append(out, n)
		}
	}
	return out
}

// productOf is the node that n can be an epilogue of: the last that n reads, in whatever shape, if it is a product of the size of all
// that n writes.
func productOf(n *Node, at map[*Node]int) *Node {
	if n.Op.Role != compute || n.Acc > 0 || !kernels.Epilogue(n.Op.Kernel) || slices.Contains(n.In, nil) {
		return nil
	}
	var last *Node
	for _, v := range n.In {
		from := source(v)
		if i, ok := at[from]; ok && (last == nil || i > at[last]) {
			last = from
		}
	}
	if last == nil || last.Acc > 0 || last.Op.Role != compute || last.Op.Kernel != kernels.Linear && last.Op.Kernel != kernels.LinearDX {
		return nil
	}
	for _, o := range n.Out {
		if tensor.Len(o.Local) != tensor.Len(last.Out[0].Local) {
			return nil
		}
	}
	return last
}

// source is the node that computes v, seen through other shapes of the same storage.
func source(v *Value) *Node {
	for v.Node.Op.Role == alias {
		v = v.Node.In[0]
	}
	return v.Node
}
