package grad

import (
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// One rank in the place of several (Options.Sums). Where these would cut a matrix along its inputs, its
// product is taken in as many parts and added up, as they add up what each of them has. What they would
// do with a sum that is still due, Tape.Scale, Add and GateRows do with the parts.

// partsOf is in how many parts ranks would take sums over the last axis of a parameter, 0 for one.
func (t *Tape) partsOf(name string, shape []int, cuts []Cut) int {
	if t.Uncut != nil && t.Uncut(name) {
		return 0
	}
	last := len(shape) - 1
	for _, c := range cuts {
		if n := t.Sums[c.Mesh]; n > 1 && c.Axis == last && shape[last]/c.Unit%n == 0 {
			return n
		}
	}
	return 0
}

// splitK says in a product's attributes in how many parts its sums over the last axis of w are taken.
func (t *Tape) splitK(w *Value, at kernels.Attr) kernels.Attr {
	if p := t.leaf(w); p != nil && p.Parts > 1 {
		at.I[3] = p.Parts
	}
	return at
}

// due reports whether a value is a sum over the ranks in whose place this one is.
func due(v *Value) bool {
	n := v.Node
	return v.terms != nil || (n.Op == opLinear || n.Op == opGrouped) && n.Attr.I[3] > 1 && n.Attr.I[2] == 0
}

// terms are what these ranks would have each of a value that is a sum over them.
func (t *Tape) terms(v *Value) []*Value {
	n := v.Node
	for i := len(v.terms); v.Node.Op != opSum && i < n.Attr.I[3]; i++ {
		at, in := n.Attr, slices.Clone(n.In)
		if at.I[2] = i + 1; i > 0 && n.Op == opLinear {
			in[2] = nil
		}
		v.terms = append(v.terms, t.one(n.Op, at, v.DType, v.Shape, v.Place, in...))
	}
	return v.terms
}

// ofTerms is the sum of what f makes of each term of a value.
func (t *Tape) ofTerms(v *Value, f func(i int, v *Value) *Value) *Value {
	var all []*Value
	for i, x := range t.terms(v) {
		all = append(all, f(i, x))
	}
	s := t.one(opSum, kernels.Attr{}, all[0].DType, v.Shape, v.Place, all...)
	s.terms = all
	return s
}

// nllInParts is TokenNLL of a vocabulary that n ranks have a shard each of.
func (t *Tape) nllInParts(x, w, target *Value, most float64, n int) *Value {
	rows := x.Shape[0]
	var lse, hit []*Value
	for i := range n {
		from, to := kernels.Shard(w.Shape[0], i, n)
		own := t.one(opSlice, kernels.Attr{I: [4]int{0, from}}, w.DType, []int{to - from, w.Shape[1]}, Place{}, w)
		a := t.emit(opLSE, kernels.Attr{I: [4]int{from}, F: [2]float64{most}}, []*Value{x, own, target},
			spec{[]int{rows, 1}, tensor.F32, Place{}}, spec{[]int{rows}, tensor.F32, Place{}})
		lse, hit = append(lse, a.Out[0]), append(hit, a.Out[1])
	}
	all := t.one(opLSEJoin, kernels.Attr{}, tensor.F32, []int{rows}, Place{}, t.Concat(1, lse...))
	sum := t.one(opSum, kernels.Attr{}, tensor.F32, []int{rows}, Place{}, hit...)
	at := kernels.Attr{F: [2]float64{most}}
	return t.one(opTokenNLL, at, tensor.F32, []int{rows}, Place{}, all, sum, target)
}

// unread leaves nodes out that nobody reads any more: sums of whose terms more was made.
func (t *Tape) unread(nodes []*Node) []*Node {
	if len(t.Sums) == 0 {
		return nodes
	}
	read := map[*Value]bool{t.loss: true, t.observed: true}
	for _, p := range t.outs {
		read[p.Value] = true
	}
	var out []*Node
	for _, n := range slices.Backward(nodes) {
		if n.Op.Role == compute && (n.Op == opLinear || n.Op == opGrouped || n.Op == opSum) && !read[n.Out[0]] {
			continue
		}
		for _, v := range n.In {
			read[v] = true
		}
		out = append(out, n)
	}
	slices.Reverse(out)
	return out
}
