package block

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Delta is linear attention by the gated delta rule (Gated DeltaNet, arXiv:2412.06464), as Qwen 3 Next has it: a short
// convolution over queries, keys and values, a state for each value head, and a gated norm of what is read from it.
type Delta struct {
	Hidden, Keys, Values, KeyDim, ValueDim, Taps int
	Eps                                          float64 // of the norm
}

// unitEps is under the root of queries' and keys' lengths.
const unitEps = 1e-6

// Size implements Part.
func (d Delta) Size() int { return d.Hidden * (2*d.Keys*d.KeyDim + 3*d.Values*d.ValueDim + 2*d.Values) }

// Record implements Part. Data: cu_seqlens, or the borders of chunks with what goes from one to the next.
// Ranks of context parallelism share out projections, gates and norms by tokens. They share out the rule by
// heads, for whole sequences, where key heads divide; else by tokens too, with states sent from rank to rank,
// where that is less work than the whole rule (grad.Relay).
func (d Delta) Record(r *Rec, name string, h *grad.Value) *grad.Value {
	t, each := r.T, d.Values/d.Keys
	project := func(which string, heads, width, unit int) *grad.Value {
		return r.Linear(name+"."+which, h, heads*width, d.Hidden, LinearOpts{Unit: unit})
	}
	l := deltaLayer{Delta: d, Rec: r, name: name, cu: r.Cu()}
	if r.Cached {
		l.cu = t.Data("cu_seqlens_k", tensor.I32, 2)
	} else if l.relay = t.Relay(h.Shape[0], d.Keys, d.KeyDim, d.ValueDim, d.Taps); l.relay != nil && t.Chunks > 1 {
		l.cu = t.Data("cu_seqlens_k", tensor.I32, 2)
	}
	mixed := func(which string, heads, width, unit int) *grad.Value {
		x := l.sequence(r.cache(name+"."+which, project(which+"_proj", heads, width, unit)))
		w := t.Taps(name+"."+which+"_conv.weight", heads*width, d.Taps, unit)
		return t.Heads(t.Act(l.conv(which, x, w), kernels.SiLU), width)
	}
	q, k := mixed("q", d.Keys, d.KeyDim, d.KeyDim), mixed("k", d.Keys, d.KeyDim, d.KeyDim)
	v := mixed("v", d.Values, d.ValueDim, each*d.ValueDim)
	a := r.cache(name+".a", project("a_proj", d.Values, 1, each))
	b := r.cache(name+".b", project("b_proj", d.Values, 1, each))
	decay := t.Param(name+".decay", []int{d.Values}, 0, each, false)
	g, beta := t.DeltaGates(a, b, decay, t.Param(name+".dt_bias", []int{d.Values}, 0, each, false))
	o := l.rule(q, k, v, l.sequence(g), l.sequence(beta))
	o = Norm{Eps: d.Eps}.Record(r, name+".norm", o, d.ValueDim)
	y := t.SwiGLU(project("z_proj", d.Values, d.ValueDim, each*d.ValueDim), t.Flat(o))
	return r.Linear(name+".o_proj", y, d.Hidden, d.Values*d.ValueDim, LinearOpts{Row: true, Unit: each * d.ValueDim})
}

// deltaLayer is a layer that is recorded, with the way in which its sequences go along ranks and chunks.
type deltaLayer struct {
	Delta
	*Rec
	name  string
	cu    *grad.Value
	relay *grad.Relay // nil where each rank has all rows of its heads
}

// sequence brings the whole sequence together where ranks or chunks have parts of it, as the
// recurrence runs over all tokens in order.
func (l *deltaLayer) sequence(x *grad.Value) *grad.Value {
	if l.relay != nil {
		return l.relay.Sequence(x)
	}
	return l.T.Sequence(x, l.Keys)
}

// conv is the short causal convolution before the recurrence. A part of a sequence needs the last
// tokens of the part before, which come from another rank or from the chunk before.
func (l *deltaLayer) conv(which string, x, w *grad.Value) *grad.Value {
	switch {
	case l.relay != nil:
		return l.relay.Conv(l.name+"."+which+"_conv", x, w, l.cu)
	case l.T.Chunks > 1:
		return l.T.ConvChunk(l.name+"."+which+"_conv", x, w)
	}
	return l.T.CausalConv(x, w, l.cu)
}

// rule gives rows and members of the residual stream.
func (l *deltaLayer) rule(q, k, v, g, beta *grad.Value) *grad.Value {
	var o *grad.Value
	switch {
	case l.relay != nil:
		return l.relay.Residual(l.relay.Rule(l.name+".state", q, k, v, g, beta, l.cu, unitEps))
	case l.T.Chunks > 1:
		o = l.T.DeltaChunk(l.name+".state", q, k, v, g, beta, unitEps)
	default:
		o = l.T.DeltaRule(q, k, v, g, beta, l.cu, unitEps)
	}
	return l.own(o)
}

// own are the rows of a sequence that are new, among the members of the residual stream.
func (l *deltaLayer) own(o *grad.Value) *grad.Value {
	switch {
	case l.Pool > 0:
		o = l.T.Take(o, l.T.Data("paged.last", tensor.I32, l.Shape.Rows))
	case l.Cached:
		o = l.T.Last(o, l.Shape.Rows)
	}
	return l.T.Residual(o)
}

// ShortConv is a convolution over the last tokens between two gates, c·conv(b·x), of projections b, c and x
// (arXiv:2511.23404).
type ShortConv struct{ Hidden, Taps int }

// Size implements Part.
func (c ShortConv) Size() int { return 4 * c.Hidden * c.Hidden }

// Record implements Part. Data and the sharing of tokens are those of Delta, by columns in place of heads.
func (c ShortConv) Record(r *Rec, name string, h *grad.Value) *grad.Value {
	l := deltaLayer{Delta: Delta{Keys: c.Hidden}, Rec: r, name: name, cu: r.Cu()}
	if r.Cached {
		l.cu = r.T.Data("cu_seqlens_k", tensor.I32, 2)
	}
	project := func(which string) *grad.Value {
		return r.Linear(name+"."+which+"_proj", h, c.Hidden, c.Hidden, LinearOpts{})
	}
	x := l.sequence(r.cache(name+".x", r.T.Mul(project("b"), project("x"))))
	y := l.own(l.conv("x", x, r.T.Taps(name+".x_conv.weight", c.Hidden, c.Taps, 1)))
	return r.Linear(name+".o_proj", r.T.Mul(project("c"), y), c.Hidden, c.Hidden, LinearOpts{Row: true})
}
