package block

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/topology"
)

// Experts is a mixture of gated MLPs, of which each token goes to a few (arXiv:2101.03961, 2401.06066): the sum of what
// they make of it, by the router's weights. Experts are shared out over the mesh axis ep, and each of them over etp.
type Experts struct {
	Hidden, Inter int // Inter is the width of an expert
	Experts, Each int // how many there are, and how many a token goes to; Limit.Copies are places beyond
	Router        routing.Router
	Limit         grad.Limit
	// Bias is the name of numbers that are added to scores for choosing, "" for none; Step is what they move
	// by after each update to even out the experts' rows, 0 for not at all (arXiv:2408.15664).
	Bias string
	Step float64
	// Biases says that router and experts have biases.
	Biases bool
	// Bound is that of gate and up, 0 for none, and Slope the factor on what the gate's
	// sigmoid reads (grad.Tape.BoundedGLU).
	Bound, Slope float64
	// Shared is an MLP that all tokens go to, if it has a width; SharedGate is the name of a layer whose
	// sigmoid it is multiplied with, "" for none.
	Shared                 Gated
	SharedName, SharedGate string
	// Jitter is how far from 1 what the router reads is multiplied at random in training, and what the
	// experts read with JitterAll.
	Jitter    float64
	JitterAll bool
	// Images is a set of as many experts of another width for tokens of images and videos, which alone go to
	// them, through a router of their own; nil where all tokens share one set. Data: KindsOf.
	Images *Experts
}

// KindsOf is the name of the tokens' kinds [t] i32, for sets of experts that are for one kind: 0 text, 1 an
// image or a video, -1 padding.
const KindsOf = "kinds"

// ImageExperts is the part of the name of a layer's experts for images that tells them from those for texts.
const ImageExperts = ".images"

// Size implements Part: the weights that a token passes, not those that there are.
func (m Experts) Size() int {
	return m.Hidden * (3*m.Each*m.Inter + m.Experts + 3*m.Shared.Inter)
}

// Record implements Part. Data: cu_seqlens for a loss of balance, KindsOf where there are sets for kinds.
func (m Experts) Record(r *Rec, name string, h *grad.Value) *grad.Value {
	t := r.T
	whole := h
	h = t.Tokens(h)
	read := h
	if m.Jitter > 0 && !t.NoGrad {
		read = t.Jitter(h, r.keys(m.Jitter), m.Jitter, r.draw())
		if m.JitterAll {
			h = read
		}
	}
	var out *grad.Value
	if m.Images == nil {
		logits := m.logits(r, name, read)
		r.balance(logits, m)
		to := t.Route(logits, m.bias(r, name), r.Cu(), m.Each, m.Router, m.Limit)
		out = m.mix(r, name, h, to)
	} else {
		out = m.byKind(r, name, h, read)
	}
	if m.Shared.Inter == 0 {
		return out
	}
	m.Shared.Hidden = m.Hidden
	s := m.Shared.Record(r, name+"."+m.SharedName, whole)
	if m.SharedGate != "" {
		w := t.Param(name+"."+m.SharedGate+".weight", []int{1, m.Hidden}, -1, 1, true)
		s = t.GateRows(s, t.Linear32(whole, w, nil))
	}
	return t.Add(s, out)
}

// logits are those of the router.
func (m Experts) logits(r *Rec, name string, read *grad.Value) *grad.Value {
	var add *grad.Value
	if m.Biases {
		add = r.T.Param(name+".gate.bias", []int{m.Experts}, -1, 1, false)
	}
	w := r.T.Param(name+".gate.weight", []int{m.Experts, m.Hidden}, -1, 1, true)
	return r.T.Linear32(read, w, add)
}

// bias is what is added to scores for choosing, nil for none.
func (m Experts) bias(r *Rec, name string) *grad.Value {
	if m.Bias == "" {
		return nil
	}
	return r.T.Bias(name+"."+m.Bias, m.Experts, m.Step)
}

// mix is what the experts make of the rows of h that go to them.
func (m Experts) mix(r *Rec, name string, h *grad.Value, to *grad.Routed) *grad.Value {
	t := r.T
	x, d := t.LowDispatch(t.Spread(h, to), to.Counts, m.places(), topology.EP, topology.ETP, t.Travel)
	e := name + ".experts."
	g := m.linear(r, e+"gate_proj", x, m.Inter, m.Hidden, 1, d.Off)
	u := m.linear(r, e+"up_proj", x, m.Inter, m.Hidden, 1, d.Off)
	y := m.linear(r, e+"down_proj", m.act(t, g, u), m.Hidden, m.Inter, 2, d.Off)
	return t.Mix(t.Combine(y, d), to)
}

// byKind lets tokens of texts and of images go to experts of their own. Losses of balance see one row of
// logits a token, that of its own router, and count the experts of both sets by their numbers.
func (m Experts) byKind(r *Rec, name string, h, read *grad.Value) *grad.Value {
	t := r.T
	kinds := t.Data(KindsOf, tensor.I32, r.Shape.Rows)
	images := *m.Images
	images.Hidden, images.Each, images.Experts, images.Step, images.Limit = m.Hidden, m.Each, m.Experts, m.Step, m.Limit
	sets, names := []Experts{m, images}, []string{name, name + ImageExperts}
	var all, out *grad.Value
	to := make([]*grad.Routed, len(sets))
	for kind, s := range sets {
		logits := s.logits(r, names[kind], read)
		to[kind] = t.RouteKind(logits, s.bias(r, names[kind]), kinds, kind, s.Each, s.Router, s.Limit)
		if r.Balance != (Balance{}) {
			all = r.sum(all, t.KindRows(logits, kinds, kind))
		}
	}
	if all != nil {
		r.balance(all, m)
	}
	for kind, s := range sets {
		out = r.sum(out, s.mix(r, names[kind], h, to[kind]))
	}
	return out
}

// places are where experts lie, each at one and some at more.
func (m Experts) places() int { return m.Experts + m.Limit.Copies }

// act is what an expert's down projection reads.
func (m Experts) act(t *grad.Tape, gate, up *grad.Value) *grad.Value {
	if m.Bound > 0 {
		return t.BoundedGLU(gate, up, m.Bound, m.Slope)
	}
	return t.SwiGLU(gate, up)
}

// linear is the projection called name of every expert, on its rows of x, with its adapter if it has one:
// [experts out in], cut along an axis over etp. Adapters are whole there, which a plan with etp is checked for.
func (m Experts) linear(r *Rec, name string, x *grad.Value, out, in, cut int, off *grad.Value) *grad.Value {
	t, byPlace := r.T, grad.Cut{Mesh: topology.EP, Axis: 0, Unit: 1, Copies: m.Limit.Copies}
	w := func(suffix string, n, k, cut int) *grad.Value {
		return t.ParamOn(name+suffix, []int{m.places(), n, k}, true, byPlace,
			grad.Cut{Mesh: topology.ETP, Axis: cut, Unit: 1})
	}
	low := 0
	if t.Low != nil {
		low = t.Low(t.Full(name + ".weight"))
	}
	var y *grad.Value
	if p := m.packed(r, name+".weight", in); p.Form > 0 {
		y = t.PackedGrouped(x, t.PackedOn(name+".weight", []int{m.places(), out, in}, p, byPlace), off, p)
	} else {
		weight := w(".weight", out, in, cut)
		if t.Fake != nil {
			weight = t.Faked(weight, t.Fake(t.Full(name+".weight")))
		}
		y = t.LowGrouped(x, t.Coded(weight, low), off, low)
	}
	if m.Biases {
		at := grad.Cut{Mesh: topology.ETP, Axis: 1, Unit: 1}
		if cut != 1 { // members have parts of a sum, to which one of them adds the whole bias
			at.Axis = -1
		}
		y = t.GroupBias(y, t.ParamOn(name+".bias", []int{m.places(), out}, false, byPlace, at), off)
	}
	l := r.Lora.Of(name)
	if l == nil {
		return y
	}
	down := t.Scale(t.GroupedLinear(x, w(".lora_A.weight", l.Rank, in, -1), off), l.Scale())
	return t.Add(y, t.GroupedLinear(down, w(".lora_B.weight", out, l.Rank, -1), off))
}

// packed is how the weights of a projection lie in memory: in few bits only where experts are whole.
func (m Experts) packed(r *Rec, weight string, in int) kernels.Packing {
	if max(r.T.Size(topology.ETP), r.T.Sums[topology.ETP]) > 1 {
		return kernels.Packing{}
	}
	return r.packed(weight, in)
}
