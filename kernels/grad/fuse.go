package grad

import (
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// fuser makes elementwise operations epilogues of the product that they read, where no communication lies
// between: the sum with a residual, the gate of a SwiGLU, an activation, the rotation of queries and keys,
// and their gradients; also one that reads what an epilogue before it made. Where a sum joins a product with
// a thin one, as that with an adapter's factors, both are computed part by part.
type fuser struct {
	readers map[*Value]int
	at      map[*Node]int    // places of nodes since the last communication
	made    map[*Value]*Node // v.Node may be one that this stands for
	behind  map[*Node]*Node  // of an epilogue, its product
	then    map[*Node][]*Node
	later   map[*Node]*Node // of a thin product, the one that waits for it
}

// The numbers that a sum of a thin product runs over: so many at most, and so many times fewer than that of
// the product beside it.
const thinMost, thinTimes = 64, 4

// fuse gives lists of nodes with epilogues, given how many nodes of all lists read a value.
func fuse(ns []*Node, readers map[*Value]int) []*Node {
	f := &fuser{readers: readers, at: map[*Node]int{}, made: map[*Value]*Node{}, behind: map[*Node]*Node{},
		then: map[*Node][]*Node{}, later: map[*Node]*Node{}}
	for i, n := range ns {
		if n.Op.comm() {
			clear(f.at)
			continue
		}
		f.at[n] = i
		if p := f.productOf(n); p != nil {
			f.append(p, n)
		}
		for _, v := range n.Out {
			f.made[v] = n
		}
	}
	waits := map[*Node]bool{}
	for _, p := range f.later {
		waits[p] = true
	}
	var out []*Node
	for _, n := range ns {
		if p := f.later[n]; p != nil {
			n = p
		} else if waits[n] || f.behind[n] != nil {
			continue
		}
		if t := f.then[n]; t != nil { // the node stays as it is in the lists of other phases
			with := *n
			for _, e := range t {
				one := *e
				with.Then = append(with.Then, &one)
			}
			n = &with
		}
		out = append(out, n)
	}
	return out
}

// append makes n an epilogue of p, and with it a thin product that n joins to p.
func (f *fuser) append(p, n *Node) {
	if q := f.joined(p, n); q != nil {
		if thin(p, q) { // the other waits for the thin one
			f.later[p], f.at[q], p, q = q, f.at[p], q, p
		}
		f.then[p], f.behind[q] = append(f.then[p], q), p
	}
	f.then[p], f.behind[n], f.at[n] = append(f.then[p], n), p, f.at[p]
}

// joined is the product that a sum n joins to p, if one of both is thin and nothing but n reads that, and, if
// it is p, nothing but n the other.
func (f *fuser) joined(p, n *Node) *Node {
	if n.Op.Kernel != kernels.Sum || len(n.In) != 2 {
		return nil
	}
	for _, v := range n.In {
		q := f.made[v]
		if _, ok := f.at[q]; !ok || q == p || !takes(q) || f.then[q] != nil || f.behind[q] != nil ||
			f.readers[v] != 1 || !slices.Equal(v.Local, p.Out[0].Local) {
			continue
		}
		if thin(q, p) || thin(p, q) && f.then[p] == nil && f.readers[p.Out[0]] == 1 && slices.Contains(n.In, p.Out[0]) {
			return q
		}
	}
	return nil
}

// takes tells whether a node is a product that takes epilogues.
func takes(n *Node) bool {
	return n.Op.Role == compute && n.Acc == 0 && kernels.TakesEpilogues(n.Op.Kernel) &&
		!(n.Op.Kernel == kernels.Linear && n.Attr.I[3] > 1)
}

// thin tells whether a node is a product without bias whose sums are short beside those of another.
func thin(n, beside *Node) bool {
	if !kernels.Epilogue(n.Op.Kernel) || len(n.In) > 2 && n.In[2] != nil {
		return false
	}
	k := depth(n)
	return k > 0 && k <= thinMost && k*thinTimes <= depth(beside)
}

// depth is the numbers that each sum of a product runs over; 0 of other nodes.
func depth(n *Node) int {
	switch n.Op.Kernel {
	case kernels.Linear:
		return n.In[1].Shape[1]
	case kernels.LinearDX, kernels.PackedLinearDX:
		return n.In[1].Shape[0]
	case kernels.PackedLinear:
		return n.In[0].Shape[len(n.In[0].Shape)-1]
	}
	return 0
}

// productOf is the node that n can be an epilogue of: the last that n reads, in whatever shape, if it is a
// product of the size of all that n writes, or the product whose epilogue that is. Products are none, those
// in parts, which take no epilogues, among them.
func (f *fuser) productOf(n *Node) *Node {
	if n.Op.Role != compute || n.Acc > 0 || !kernels.Epilogue(n.Op.Kernel) ||
		kernels.TakesEpilogues(n.Op.Kernel) || slices.Contains(n.In, nil) {
		return nil
	}
	var last *Node
	for _, v := range n.In {
		from := f.made[source(v)]
		if i, ok := f.at[from]; ok && (last == nil || i > f.at[last] || i == f.at[last] && f.behind[from] != nil) {
			last = from
		}
	}
	if last != nil && f.behind[last] != nil {
		last = f.behind[last]
	}
	if last == nil || !takes(last) {
		return nil
	}
	for _, o := range n.Out {
		if tensor.Len(o.Local) != tensor.Len(last.Out[0].Local) {
			return nil
		}
	}
	return last
}

// readersOf counts the nodes that read each value.
func (t *Tape) readersOf() map[*Value]int {
	all := map[*Value]int{}
	for _, n := range t.nodes {
		for _, v := range n.In {
			all[v]++
		}
	}
	for _, p := range t.outs {
		all[p.Value]++
	}
	all[t.loss]++
	all[t.observed]++
	return all
}

// passing marks products whose results nothing but their epilogues reads, by the slots that die with a node.
func passing(ns []*Node, free map[int][]int) {
	for _, n := range ns {
		if len(n.Then) == 0 {
			continue
		}
		for _, m := range append([]*Node{n}, n.Then...) {
			m.Passing = takes(m) && slices.Contains(free[n.ID], m.Out[0].ID)
		}
	}
}

// source is the value that v is another shape of, with the same storage.
func source(v *Value) *Value {
	for v.Node.Op.Role == alias {
		v = v.Node.In[0]
	}
	return v
}

// epilogues puts the node's into the call. It returns the views it took: of the product in shapes that come later.
func (r *Runner) epilogues(f *Frame, n *Node, c *kernels.Call) (views []*tensor.Tensor) {
	c.Then, c.Passing = c.Then[:0], n.Passing && r.Seen == nil
	for _, e := range n.Then {
		t := &kernels.Call{Op: e.Op.Kernel, Attr: e.Attr, Passing: e.Passing && r.Seen == nil}
		for _, v := range e.Out { // before any view is taken: a rank may have no memory left
			f.slots[v.ID] = r.allocShape(v.Name, v.DType, r.epilogueShape(f, n, v))
			t.Out = append(t.Out, f.slots[v.ID])
		}
		c.Then = append(c.Then, t)
	}
	for i, e := range n.Then {
		t := c.Then[i]
		for _, v := range e.In {
			if v != nil && v.Node.Op.Role == alias && f.slots[v.ID] == nil {
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
