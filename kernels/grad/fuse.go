package grad

import (
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// fuse makes elementwise operations epilogues of the product that they read, where no communication lies
// between: the sum with a residual, the gate of a SwiGLU, an activation, the rotation of queries and keys,
// and their gradients.
func fuse(ns []*Node) []*Node {
	at := map[*Node]int{} // places of nodes since the last communication
	made := map[*Value]*Node{}
	behind := map[*Node]*Node{}
	then := map[*Node][]*Node{}
	for i, n := range ns {
		if n.Op.comm() {
			clear(at)
			continue
		}
		if p := productOf(n, at, made); p != nil {
			then[p], behind[n] = append(then[p], n), p
		}
		at[n] = i
		for _, v := range n.Out { // v.Node may be one that this stands for
			made[v] = n
		}
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

// productOf is the node that n can be an epilogue of: the last that n reads, in whatever shape, if it is a
// product of the size of all that n writes.
func productOf(n *Node, at map[*Node]int, made map[*Value]*Node) *Node {
	if n.Op.Role != compute || n.Acc > 0 || !kernels.Epilogue(n.Op.Kernel) || slices.Contains(n.In, nil) {
		return nil
	}
	var last *Node
	for _, v := range n.In {
		from := made[source(v)]
		if i, ok := at[from]; ok && (last == nil || i > at[last]) {
			last = from
		}
	}
	if last == nil || last.Acc > 0 || last.Op.Role != compute || !kernels.TakesEpilogues(last.Op.Kernel) {
		return nil
	}
	for _, o := range n.Out {
		if tensor.Len(o.Local) != tensor.Len(last.Out[0].Local) {
			return nil
		}
	}
	return last
}

// source is the value that v is another shape of, with the same storage.
func source(v *Value) *Value {
	for v.Node.Op.Role == alias {
		v = v.Node.In[0]
	}
	return v
}

// epilogues puts the node's into the call. It returns the views it took: of the product in shapes that come
// later.
func (r *Runner) epilogues(f *Frame, n *Node, c *kernels.Call) (views []*tensor.Tensor) {
	c.Then = c.Then[:0]
	for _, e := range n.Then {
		t := &kernels.Call{Op: e.Op.Kernel, Attr: e.Attr}
		for _, v := range e.Out { // before any view is taken: a rank may have no memory left
			f.slots[v.ID] = r.allocShape(v.Name, v.DType, r.epilogueShape(f, n, v))
			t.Out = append(t.Out, f.slots[v.ID])
		}
		c.Then = append(c.Then, t)
	}
	for i, e := range n.Then {
		t := c.Then[i]
		for _, v := range e.In {
			if v.Node.Op.Role == alias && f.slots[v.ID] == nil {
				whole := v
				for whole.Node.Op.Role == alias {
					whole = whole.Node.In[0]
				}
				views = append(views, r.operand(f, n, whole).Alias(r.epilogueShape(f, n, v)...))
				t.In = append(t.In, views[len(views)-1])
				continue
			}
			t.In = append(t.In, r.operand(f, n, v))
		}
	}
	return views
}

// epilogueShape is that of an epilogue's result: its rows are those of the product.
func (r *Runner) epilogueShape(f *Frame, n *Node, v *Value) []int {
	if !v.Ragged {
		return v.Local
	}
	return append([]int{f.slots[n.Out[0].ID].Shape[0]}, v.Local[1:]...)
}
