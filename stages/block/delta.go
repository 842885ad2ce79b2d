package block

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Delta is linear attention by the gated delta rule (Gated DeltaNet, arXiv:2412.06464), as Qwen 3 Next has
// it: a short convolution over queries, keys and values, a state for each value head, and a gated norm of
// what is read from it.
type Delta struct {
	Hidden, Keys, Values, KeyDim, ValueDim, Taps int
	Eps                                          float64 // of the norm
}

// unitEps is under the root of queries' and keys' lengths.
const unitEps = 1e-6

// Size implements Part.
func (d Delta) Size() int { return d.Hidden * (2*d.Keys*d.KeyDim + 3*d.Values*d.ValueDim + 2*d.Values) }

// Record implements Part. Data: cu_seqlens, or the borders of chunks with what goes from one to the next.
// Ranks of context parallelism share out projections, gates and norms by tokens and the rule by heads, for
// whole sequences, where key heads divide; else each of them runs it for all.
func (d Delta) Record(r *Rec, name string, h *grad.Value) *grad.Value {
	t, each := r.T, d.Values/d.Keys
	project := func(which string, heads, width, unit int) *grad.Value {
		return r.Linear(name+"."+which, h, heads*width, d.Hidden, LinearOpts{Unit: unit})
	}
	cu := r.Cu()
	if r.Cached {
		cu = t.Data("cu_seqlens_k", tensor.I32, 2)
	}
	mixed := func(which string, heads, width, unit int) *grad.Value {
		x := t.Sequence(r.cache(name+"."+which, project(which+"_proj", heads, width, unit)), d.Keys)
		w := t.Param(name+"."+which+"_conv.weight", []int{heads * width, d.Taps}, 0, unit, true)
		if t.Chunks > 1 {
			return t.Heads(t.Act(t.ConvChunk(name+"."+which+"_conv", x, w), kernels.SiLU), width)
		}
		return t.Heads(t.Act(t.CausalConv(x, w, cu), kernels.SiLU), width)
	}
	q, k := mixed("q", d.Keys, d.KeyDim, d.KeyDim), mixed("k", d.Keys, d.KeyDim, d.KeyDim)
	v := mixed("v", d.Values, d.ValueDim, each*d.ValueDim)
	a, b := r.cache(
		name+".a",
		project("a_proj", d.Values, 1, each),
	), r.cache(
		name+".b",
		project("b_proj", d.Values, 1, each),
	)
	decay := t.Param(name+".decay", []int{d.Values}, 0, each, false)
	g, beta := t.DeltaGates(a, b, decay, t.Param(name+".dt_bias", []int{d.Values}, 0, each, false))
	g, beta = t.Sequence(g, d.Keys), t.Sequence(beta, d.Keys)
	var o *grad.Value
	if t.Chunks > 1 {
		o = t.DeltaChunk(name+".state", q, k, v, g, beta, unitEps)
	} else {
		o = t.DeltaRule(q, k, v, g, beta, cu, unitEps)
	}
	if r.Cached {
		o = t.Last(o, r.Shape.Rows)
	}
	o = Norm{Eps: d.Eps}.Record(r, name+".norm", t.Residual(o), d.ValueDim)
	y := t.SwiGLU(project("z_proj", d.Values, d.ValueDim, each*d.ValueDim), t.Flat(o))
	return r.Linear(
		name+".o_proj",
		y,
		d.Hidden,
		d.Values*d.ValueDim,
		LinearOpts{Row: true, Unit: each * d.ValueDim},
	)
}
