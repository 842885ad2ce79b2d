package grad

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// ShardRows is the rows [from, to) of a tensor with the given rows that member i of n keeps: the
// data-parallel shard of parameters, gradients and optimizer state.
func ShardRows(rows, i, n int) (from, to int) { return rows * i / n, rows * (i + 1) / n }

// rowsOf is the first dimension, 1 for a scalar.
func rowsOf(shape []int) int {
	if len(shape) == 0 {
		return 1
	}
	return shape[0]
}

// Bundle is a member's part of a communication: mostly one tensor; rows whose number data decides travel
// with their counts.
type Bundle []*tensor.Tensor

// release drops the references of all parts.
func release(parts []Bundle) {
	for _, b := range parts {
		for _, t := range b {
			t.Release()
		}
	}
}

// split makes the part of a communication for each member of its group; the caller owns one reference to each.
func (r *Runner) split(f *Frame, n *Node) []Bundle {
	switch n.Op.Role {
	case dispatch:
		return r.dispatchParts(f, n)
	case combine:
		return r.combineParts(f, n)
	}
	in := r.operand(f, n, n.In[0])
	size := f.Trace.GroupSize(n)
	parts := make([]Bundle, size)
	if by := n.Shift(); by != 0 { // to one member alone
		parts[((f.Trace.Member(r.Pos, n.Axes)+by)%size+size)%size] = Bundle{in.Retain()}
		return parts
	}
	if n.Op.Role == unshard && n.Attr.I[1] > 0 {
		in = r.encoded(n, in)
		defer in.Release()
	}
	if p := f.Trace.reduced(n); p != nil && f.Trace.InFixedPoint(p) {
		in = r.toFixed(p, in, nil)
		defer in.Release()
	}
	for d := range parts {
		switch {
		case n.Op.Role == reduce:
			from, to := ShardRows(rowsOf(in.Shape), d, size)
			parts[d] = Bundle{in.RowSlice(from, to)}
		case n.Op.Role == convert && n.Out[0].Place[n.Axes[0]].Kind == Sharded:
			parts[d] = Bundle{r.section(in, int(n.Out[0].Place[n.Axes[0]].Axis), d, size)}
		default:
			parts[d] = Bundle{in.Retain()}
		}
	}
	return parts
}

// reduced is the parameter whose gradient a node reduces to its shard; nil for other nodes.
func (tr *Trace) reduced(n *Node) *Param {
	if n.Op.Role != reduce {
		return nil
	}
	return tr.Params[n.Acc-1]
}

// section is the d-th of n equal parts along an axis; along the first it is a view.
func (r *Runner) section(t *tensor.Tensor, axis, d, n int) *tensor.Tensor {
	w := t.Shape[axis] / n
	if axis == 0 {
		return t.RowSlice(d*w, (d+1)*w)
	}
	shape := append([]int(nil), t.Shape...)
	shape[axis] = w
	o := r.allocShape("part", t.DType, shape)
	r.run(kernels.Slice, kernels.Attr{I: [4]int{axis, d * w}}, []*tensor.Tensor{t}, o)
	return o
}

// trim takes the padding off the last parts of a table, so that there are n rows or columns in all.
func (r *Runner) trim(parts []*tensor.Tensor, axis, n int) {
	for d, p := range parts {
		w := min(p.Shape[axis], max(0, n))
		n -= w
		if w == p.Shape[axis] {
			continue
		}
		if axis == 0 {
			parts[d] = p.RowSlice(0, w)
		} else {
			shape := append([]int(nil), p.Shape...)
			shape[axis] = w
			parts[d] = r.allocShape("part", p.DType, shape)
			r.run(kernels.Slice, kernels.Attr{I: [4]int{axis}}, []*tensor.Tensor{p}, parts[d])
		}
		p.Release()
	}
}

// joined is the shape of what a change of placement gives: the rows of a ragged value are those of the parts.
func joined(n *Node, parts []*tensor.Tensor) []int {
	out := n.Out[0]
	if !out.Ragged {
		return out.Local
	}
	shape := append([]int{parts[0].Shape[0]}, out.Local[1:]...)
	if n.In[0].Place[n.Axes[0]] == (Part{Sharded, 0}) {
		for _, p := range parts[1:] {
			shape[0] += p.Shape[0]
		}
	}
	return shape
}

// join makes of all members' parts, in member order, the result of a communication, and releases the parts.
func (r *Runner) join(f *Frame, n *Node, bundles []Bundle) {
	switch n.Op.Role {
	case dispatch:
		r.takeDispatched(f, n, bundles)
		release(bundles)
		return
	case combine:
		r.takeCombined(f, n, bundles)
		release(bundles)
		return
	}
	parts := make([]*tensor.Tensor, len(bundles))
	for d, b := range bundles {
		parts[d] = b[0]
	}
	switch {
	case n.Op.Role == reduce:
		shape := parts[0].Shape
		add, d, at := kernels.Sum, f.Trace.GradType(f.Trace.reduced(n)), kernels.Attr{}
		if d == tensor.I64 {
			add, at.I[0] = kernels.FixedSum, n.Attr.I[0]
		}
		sum := r.allocShape("gradient shard of "+n.Attr.Name, d, shape)
		r.run(add, at, parts, sum)
		r.accumulate(f, n, sum)
		sum.Release()
	case n.Op.Role == unshard:
		t := r.alloc(n.Out[0])
		if n.Attr.I[1] > 0 {
			r.decoded(n, parts, t)
		} else {
			r.run(kernels.Concat, kernels.Attr{}, parts, t)
		}
		f.slots[n.Out[0].ID] = t
	default:
		t := r.allocShape(n.Out[0].Name, n.Out[0].DType, joined(n, parts))
		if from := n.In[0].Place[n.Axes[0]]; from.Kind == Sharded {
			r.trim(parts, int(from.Axis), t.Shape[from.Axis])
			r.run(kernels.Concat, kernels.Attr{I: [4]int{int(from.Axis)}}, parts, t)
		} else {
			r.run(kernels.Sum, kernels.Attr{}, parts, t)
		}
		f.slots[n.Out[0].ID] = t
	}
	for _, p := range parts {
		p.Release()
	}
}
