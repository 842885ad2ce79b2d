package grad

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// RowsError says that more rows came to a rank than the plan has memory for.
type RowsError struct {
	Block      int // of the model
	Rows, Even int // that came, and under even sharing
	Most       float64
}

// Error names the block and the numbers.
func (e *RowsError) Error() string {
	return fmt.Sprintf("%d rows of tokens came to the experts of block %d, %.2f times as many as under even routing "+
		"(%d), and train.routing_bound is %g; raise it, or keep experts evenly used with train.router.loss", e.Rows,
		e.Block, float64(e.Rows)/float64(max(1, e.Even)), e.Even, e.Most)
}

// LogitsError says that a router's logits are not finite, so that nobody can say where a token goes.
type LogitsError struct {
	Block       int // of the model
	Row, Expert int // of the microbatch's tokens, and of the layer's experts
	Sequence    int // of those packed into the microbatch
	Value       float64
}

// Error names the block, the token and the expert.
func (e *LogitsError) Error() string {
	return fmt.Sprintf("the router of block %d gives expert %d a logit of %g for token %d of the "+
		"microbatch, in its sequence %d", e.Block, e.Expert, e.Value, e.Row, e.Sequence)
}

// finite notes the first logit of a layer that is not finite.
func (r *Runner) finite(f *Frame, n *Node, logits *tensor.Tensor) {
	h := kernels.Host(r.Backend, logits)
	defer h.Release()
	experts := h.Shape[1]
	for i, x := range h.F32() {
		if x-x == 0 {
			continue
		}
		row := i/experts + f.Trace.Member(r.Pos, n.In[0].Place.Cuts(0))*h.Shape[0]
		r.Void = append(r.Void, &LogitsError{Block: n.Block, Row: row, Expert: i % experts,
			Sequence: f.sequence(r.Backend, row), Value: float64(x)})
		return
	}
}

// sequence is which of the microbatch's packed sequences has a row; 0 where the borders are not known.
func (f *Frame) sequence(b kernels.Backend, row int) (at int) {
	for _, n := range f.Trace.nodes {
		if n.Op.Role != data || n.Attr.Name != "cu_seqlens" || f.slots[n.Out[0].ID] == nil {
			continue
		}
		for i, from := range kernels.Ints(b, f.slots[n.Out[0].ID]) {
			if int(from) <= row {
				at = i
			}
		}
	}
	return at
}

// routed looks at where tokens go.
func (r *Runner) routed(f *Frame, n *Node, c *kernels.Call) {
	if c.Op == kernels.Route {
		r.finite(f, n, c.In[0])
	}
	ofKind := n.Op == opRouteKind[0] || n.Op == opRouteKind[1] // kind_experts says which tokens are its own
	if r.Routed == nil || ofKind || n.Phase != F {
		return
	}
	if c.Op == kernels.KindExperts {
		c = &kernels.Call{Op: kernels.Route, Attr: n.In[0].Node.Attr, Out: []*tensor.Tensor{nil, c.Out[0]},
			In: []*tensor.Tensor{f.slots[n.In[2].ID]}}
	}
	first := f.Trace.Member(r.Pos, n.In[0].Place.Cuts(0)) * c.In[0].Shape[0]
	if err := r.Routed(f, n.Block, first, c); err != nil {
		panic(&RoutingError{err})
	}
}

// RoutingError is why where tokens go could not be recorded or replayed.
type RoutingError struct{ Err error }

// Error is that of what went wrong.
func (e *RoutingError) Error() string { return e.Err.Error() }

// Unwrap is what went wrong.
func (e *RoutingError) Unwrap() error { return e.Err }

// RaggedCosts are what of a segment's costs grows with the rows that routing brings, by block.
func (tr *Trace) RaggedCosts(s *Segment) map[int]Cost {
	t, out := Tape{Options: tr.Options}, map[int]Cost{}
	ragged := func(v *Value) bool { return v != nil && v.Ragged }
	for _, n := range s.Ops {
		if slices.ContainsFunc(n.In, ragged) || slices.ContainsFunc(n.Out, ragged) {
			c, own := out[n.Block], Cost{}
			t.cost(&own, n)
			c.Flops, c.Filled, c.Calls = c.Flops+own.Flops, c.Filled+own.Filled, c.Calls+own.Calls
			for _, v := range slices.Concat(n.In,
				n.Out) { // weights are read once, however many rows there are
				if ragged(v) && own.Bytes > 0 { // else its traffic hides behind its arithmetic
					c.Bytes += bytesOf(&t.Options, v)
				}
			}
			out[n.Block] = c
		}
	}
	return out
}
