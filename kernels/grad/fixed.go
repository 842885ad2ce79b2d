package grad

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Gradients are added up in fixed point where no plan is to change their bits: each microbatch's is computed by itself
// in float32, as always, and added as whole numbers of 64 bits, whose sum is the same in any order and over any
// shares. What is counted, and the greatest of something, is exact as it is.

// InFixedPoint reports whether the gradient of p is added up in fixed point.
func (o *Options) InFixedPoint(p *Param) bool { return o.FixedPoint && p.Rule.Op == "" && !p.Largest }

// GradType is the type that the gradient of p is added up in.
func (o *Options) GradType(p *Param) tensor.DType {
	if o.InFixedPoint(p) {
		return tensor.I64
	}
	return tensor.F32
}

// FixedUnit is the worth of the last place of a gradient in fixed point, whose numbers of a microbatch have to be below
// 2^reach.
func FixedUnit(reach float64) float64 { return math.Ldexp(1, int(reach)-kernels.FixedBits) }

// ReachError says that numbers of a microbatch's gradient are too large for sums in fixed point, or none.
type ReachError struct {
	Param string
	Reach float64 // binary logarithm
}

// Error names the parameter and the bound.
func (e *ReachError) Error() string {
	return fmt.Sprintf("the gradient of %s has numbers in a microbatch that are not finite or not below 2^%g: sums in "+
		"fixed point have no room for them after the steps before (train.reproducible: any-plan)", e.Param, e.Reach)
}

// term is what a call makes of the gradient of node n's parameter, to be added in fixed point; nil where the call adds.
func (r *Runner) term(f *Frame, n *Node, c *kernels.Call) *tensor.Tensor {
	if n.Acc == 0 || !f.Trace.InFixedPoint(f.Trace.Params[n.Acc-1]) {
		return nil
	}
	return c.Out[n.sumsInto()]
}

// toFixed is a microbatch's term x of the gradient of p in fixed point, as a new tensor or added to q.
func (r *Runner) toFixed(p *Param, x, q *tensor.Tensor) *tensor.Tensor {
	add := kernels.Accumulate
	if q == nil {
		q, add = r.allocShape("gradient of "+p.Name, tensor.I64, x.Shape), 0
	}
	over := tensor.Make(tensor.I64, 1)
	r.run(kernels.FixedAdd, kernels.Attr{I: [4]int{add}, F: [2]float64{1 / FixedUnit(r.Reach)}}, []*tensor.Tensor{x}, q,
		over)
	if over.I64()[0] > 0 {
		r.Void = append(r.Void, &ReachError{p.Name, r.Reach})
	}
	return q
}

// addFixed adds a term of the gradient of p to what there is: a microbatch's in float32, or one in fixed point.
func (r *Runner) addFixed(p *Param, x *tensor.Tensor) {
	switch q := r.Grads[p.Name]; {
	case x.DType != tensor.I64:
		r.Grads[p.Name] = r.toFixed(p, x, q)
	case q == nil:
		r.Grads[p.Name] = x.Retain()
	default:
		r.run(kernels.FixedSum, kernels.Attr{}, []*tensor.Tensor{q, x}, q)
	}
}

// term is the bytes of what a call makes of a gradient before it is added in fixed point.
func (f *footprint) term(n *Node) int64 {
	if n.Acc == 0 || len(n.Out) == 0 || !f.tr.InFixedPoint(f.tr.Params[n.Acc-1]) {
		return 0
	}
	return tensor.ClassBytes(int64(tensor.F32.Size() * tensor.Len(f.tr.Params[n.Acc-1].Local)))
}

// converts counts what is sent of a gradient in fixed point, beside the gradient itself.
func (f *footprint) converts(n *Node) {
	if s, ok := f.at[n.In[0].ID]; ok && f.tr.InFixedPoint(f.tr.reduced(n)) {
		b := tensor.ClassBytes(f.elements(n.In[0]) * int64(tensor.I64.Size()))
		f.size[s] += b
		f.now += b
		f.count()
	}
}

// converted leaves of a gradient under way what is sent of it.
func (f *footprint) converted(n *Node, storage int) {
	if p := f.tr.reduced(n); p != nil && f.tr.InFixedPoint(p) {
		f.size[storage] -= f.bytesOf(n.In[0])
		f.now -= f.bytesOf(n.In[0])
	}
}
