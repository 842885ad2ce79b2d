package grad

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// join decides the placement of a product of tensors named by letters on one mesh axis. lead keeps its sharding,
// the other operand is brought to the same letter; a sharded letter that is summed over gives a partial result.
func join(lead, oth Part, ll, lo, lout string) (l, o, out Part) {
	letter := byte(0)
	if lead.Kind == Sharded {
		letter = ll[lead.Axis]
	} else if oth.Kind == Sharded {
		letter = lo[oth.Axis]
	}
	if letter == 0 {
		return
	}
	at := func(s string) Part {
		if k := strings.IndexByte(s, letter); k >= 0 {
			return Part{Sharded, int8(k)}
		}
		return Part{}
	}
	l, o, out = at(ll), at(lo), at(lout)
	if out.Kind == Replicated {
		out = Part{Kind: Partial}
	}
	return
}

// product brings both operands to matching placements and returns them with the placement of the result.
func (t *Tape) product(lead, oth *Value, ll, lo, lout string) (*Value, *Value, Place) {
	lead, oth = t.full(lead), t.full(oth)
	var pl, po, out Place
	for m := range t.Mesh {
		pl[m], po[m], out[m] = join(lead.Place[m], oth.Place[m], ll, lo, lout)
	}
	return t.to(lead, pl), t.to(oth, po), out
}

var opLinear, opLinearDX, opLinearDW, opColSum, opLow, opLowDX, opLowDW *Op

func init() {
	opLinearDX = &Op{Name: "linear_dx", Kernel: kernels.LinearDX}
	opLinearDW = &Op{Name: "linear_dw", Kernel: kernels.LinearDW}
	opColSum = &Op{Name: "col_sum", Kernel: kernels.ColSum}
	opLinear = &Op{Name: "linear", Kernel: kernels.Linear, VJP: linearVJP}
	opLowDX = &Op{Name: "low_linear_dx", Kernel: kernels.LowLinearDX}
	opLowDW = &Op{Name: "low_linear_dw", Kernel: kernels.LowLinearDW}
	opLow = &Op{Name: "low_linear", Kernel: kernels.LowLinear, VJP: linearVJP, Args: 4}
}

// Linear is x·wᵀ + bias; bias may be nil. Shapes: x [t k], w [n k], bias [n] -> [t n].
func (t *Tape) Linear(x, w, bias *Value) *Value {
	return t.linear(opLinear, t.splitK(w, kernels.Attr{}), x, w, bias)
}

// LowLinear is Linear whose three products are of operands that are rounded as kernels.Precisions[precision]
// says; 0 is Linear. Blocks are counted from the beginning of what a member of a mesh has.
func (t *Tape) LowLinear(x, w, bias *Value, precision int) *Value {
	if precision == 0 {
		return t.Linear(x, w, bias)
	}
	return t.linear(opLow, kernels.Attr{I: [4]int{0, precision}}, x, w, bias, t.noisy(precision, t.state(w, precision))...)
}

func (t *Tape) linear(op *Op, at kernels.Attr, x, w, bias *Value, choice ...*Value) *Value {
	w, x, p := t.product(w, x, "nk", "tk", "tn")
	in := append([]*Value{x, w, nil}, choice...)
	if bias != nil {
		var pb Place
		for m := range t.Mesh {
			if p[m] == (Part{Sharded, 1}) {
				pb[m] = Part{Sharded, 0}
			}
		}
		in[2] = t.to(bias, pb)
	}
	return t.one(op, at, x.DType, []int{x.Shape[0], w.Shape[0]}, p, in...)
}

// linearVJP is the gradient of y = x·wᵀ + b: dx = dy·w, dw = dyᵀ·x, and db is the sum of dy over the rows.
func linearVJP(t *Tape, n *Node, dy []*Value, leg func(i int) bool) []*Value {
	g := make([]*Value, len(n.In))
	d, x, w := dy[0], n.In[0], n.In[1]
	at, dx, dw, choice := n.Attr, opLinearDX, opLinearDW, []*Value(nil)
	if n.Op == opLow {
		dx, dw, choice, at.I[3] = opLowDX, opLowDW, n.In[3:], t.site(w)
	}
	if leg(0) {
		w, d, p := t.product(w, d, "nk", "tn", "tk")
		g[0] = t.one(dx, at, d.DType, x.Shape, p, append([]*Value{d, w}, choice...)...)
	}
	if leg(1) {
		d, x, p := t.product(d, x, "tn", "tk", "nk")
		g[1] = t.one(dw, at, tensor.F32, w.Shape, p, append([]*Value{d, x}, choice...)...)
		if len(choice) > 0 && choice[0] != nil && leg(3) {
			g[3] = t.stateGrad(n.Attr, x, t.to(w, p.dual()), d, choice[0], nil)
		}
	}
	if n.In[2] != nil && leg(2) {
		g[2] = t.rowSum(opColSum, d, n.In[2].Shape)
	}
	return g
}

// rowSum emits an operation that sums rows of d away: sharded rows give a partial result.
func (t *Tape) rowSum(op *Op, d *Value, shape []int, more ...*Value) *Value {
	d = t.full(d)
	var p Place
	for m := range t.Mesh {
		switch {
		case d.Place[m].Kind != Sharded:
		case int(d.Place[m].Axis) == len(d.Shape)-1:
			p[m] = Part{Sharded, 0}
		default:
			p[m] = Part{Kind: Partial}
		}
	}
	return t.one(op, kernels.Attr{}, tensor.F32, shape, p, append([]*Value{d}, more...)...)
}

var opNorm, opNormDX, opNormDW *Op

func init() {
	opNormDX = &Op{Name: "rmsnorm_dx", Kernel: kernels.RMSNormDX}
	opNormDW = &Op{Name: "rmsnorm_dw", Kernel: kernels.RMSNormDW}
	opNorm = &Op{Name: "rmsnorm", Kernel: kernels.RMSNorm, Cheap: true,
		VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
			g := make([]*Value, 2)
			x, w, rstd := n.In[0], n.In[1], n.Out[1]
			d := t.to(dy[0], n.Out[0].Place)
			if leg(0) {
				g[0] = t.one(opNormDX, n.Attr, x.DType, x.Shape, x.Place, d, x, w, rstd)
			}
			if leg(1) {
				g[1] = t.rowSum(opNormDW, d, w.Shape, x, rstd)
			}
			return g
		}}
}

// RMSNorm normalises the last axis of x [... d] with weight w [d].
func (t *Tape) RMSNorm(x, w *Value, eps float64) *Value { return t.RMSNormPlus(x, w, eps, 0) }

// UnitNorm is RMSNorm without a weight.
func (t *Tape) UnitNorm(x *Value, eps float64) *Value {
	return t.RMSNorm(x, t.ones(x.Shape[len(x.Shape)-1], x.DType), eps)
}

// RMSNormPlus is RMSNorm with weight w + plus.
func (t *Tape) RMSNormPlus(x, w *Value, eps, plus float64) *Value {
	x, w = t.only(x, upTo(len(x.Shape)-1)...), t.to(w, Place{})
	at := kernels.Attr{F: [2]float64{eps, plus}}
	n := t.emit(opNorm, at, []*Value{x, w}, spec{x.Shape, x.DType, x.Place},
		spec{x.Shape[:len(x.Shape)-1], tensor.F32, x.Place})
	return n.Out[0]
}

var opRopeTable, opRope, opAlias *Op

func init() {
	opRopeTable = &Op{Name: "rope_table", Kernel: kernels.RopeTable}
	opAlias = &Op{Name: "reshape", Role: alias}
	opRope = &Op{Name: "rope", Kernel: kernels.Rope, VJP: func(t *Tape, n *Node, dy []*Value,
		leg func(int) bool) []*Value {
		g := make([]*Value, 3)
		if leg(0) {
			at := n.Attr
			at.I[0] = -at.I[0]
			g[0] = t.one(opRope, at, dy[0].DType, dy[0].Shape, n.Out[0].Place, t.to(dy[0], n.Out[0].Place),
				n.In[1], n.In[2])
		}
		return g
	}}
}

// RopeTable gives cos and sin [t r] of positions pos [t] and inverse frequencies inv [r]; scale multiplies both.
func (t *Tape) RopeTable(pos, inv *Value, scale float64) (cos, sin *Value) {
	pos = t.OwnTokens(pos)
	s := spec{[]int{pos.Shape[0], inv.Shape[0]}, tensor.F32, pos.Place}
	n := t.emit(opRopeTable, kernels.Attr{F: [2]float64{scale}}, []*Value{pos, inv}, s, s)
	return n.Out[0], n.Out[1]
}

// Rope rotates x [t h d]; interleaved selects pairs (2i, 2i+1).
func (t *Tape) Rope(x, cos, sin *Value, interleaved bool) *Value {
	x = t.tokenwise(x)
	cos, sin = t.alongRows(cos, x), t.alongRows(sin, x)
	at := kernels.Attr{I: [4]int{1}}
	if interleaved {
		at.I[1] = 1
	}
	return t.one(opRope, at, x.DType, x.Shape, x.Place, x, cos, sin)
}

// Heads views x [t h·d] as [t h d].
func (t *Tape) Heads(x *Value, d int) *Value {
	x = t.full(x)
	return t.one(opAlias, kernels.Attr{}, x.DType, []int{x.Shape[0], x.Shape[1] / d, d}, x.Place, x)
}

// Flat views x [t h d] as [t h·d].
func (t *Tape) Flat(x *Value) *Value {
	x = t.only(x, 0, 1)
	return t.one(opAlias, kernels.Attr{}, x.DType, []int{x.Shape[0], x.Shape[1] * x.Shape[2]}, x.Place, x)
}

var opAttn, opAttnBwd, opPick, opPickGrad *Op

func init() {
	opAttnBwd = &Op{Name: "attention_bwd", Kernel: kernels.AttentionBwd}
	opAttn = &Op{Name: "attention", Kernel: kernels.Attention, VJP: attentionVJP}
	opPickGrad = &Op{Name: "pick_grad", Role: pickGrad}
	opPick = &Op{Name: "pick", Role: pick, VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
		if !leg(0) {
			return []*Value{nil}
		}
		p := n.In[0].Place
		for _, m := range n.Axes {
			p[m] = Part{Kind: Partial}
		}
		v := t.one(opPickGrad, kernels.Attr{}, dy[0].DType, n.In[0].Shape, p, t.to(dy[0], n.Out[0].Place))
		v.Node.Axes = n.Axes
		return []*Value{v}
	}}
}

// AttentionConfig holds the constants of Attention.
type AttentionConfig struct {
	Scale  float64
	Cap    float64 // soft cap of the scores, 0 for none
	Causal bool
	Window int // keys a query sees, 0 for all
	// Peak names the parameter that keeps the greatest scores of each head (Tape.Shrinks); "" keeps none
	Peak string
	// Blocks are the visible tiles of Tile rows by Tile rows, as bits; PosQ, PosK and Near a window in three
	// dimensions. See kernels.Attention. Any may be nil.
	Blocks           *Value
	Tile             int
	PosQ, PosK, Near *Value
	// Tokens says that rows are the microbatch's tokens, which context parallelism may have dealt out in
	// pieces. Keys and values of earlier chunks, from Carry, are in order.
	Tokens bool
	// Carry is a name under which keys and values of earlier chunks belong to the attention; empty where
	// they are among its operands or are not wanted.
	Carry string
	// Sink has a logit for each head [1 h] that is part of every softmax and belongs to no key; nil for none.
	Sink *Value
}

// tokenwise keeps heads sharded, and rows on the axes of context parallelism.
func (t *Tape) tokenwise(x *Value) *Value {
	p := x.Place
	for m := range p {
		if p[m] != (Part{Sharded, 1}) && (m >= len(t.Mesh) || !t.Mesh[m].Context || p[m] != (Part{Sharded, 0})) {
			p[m] = Part{}
		}
	}
	return t.to(x, p)
}

// alongRows brings v, a row for each of x, to the rows that members have of x.
func (t *Tape) alongRows(v, x *Value) *Value {
	var p Place
	for _, m := range x.Place.Cuts(0) {
		p[m] = Part{Sharded, 0}
	}
	return t.to(v, p)
}

// Attention is packed attention over sequences cut by cuQ and cuK: q [t h d], k [s g d], v [s g e] -> [t h e].
func (t *Tape) Attention(q, k, v, cuQ, cuK *Value, c AttentionConfig) *Value {
	q, k, v = t.exchange(q), t.exchange(k), t.exchange(v)
	x := t.sharing(q, k, c)
	if x != nil {
		q = t.only(q, 0, 1)
	} else {
		q = t.only(q, 1)
	}
	ring := x != nil && x.ring
	if c.Carry != "" && !ring {
		k, v = t.Carry(c.Carry+".k", k), t.Carry(c.Carry+".v", v)
	}
	k, v = t.keys(k, q, ring), t.keys(v, q, ring)
	dealt := c.Tokens && t.dealt() > 0 && (x == nil || x.pieces > 1)
	if dealt && !ring && t.Chunks == 1 {
		k, v = t.natural(k), t.natural(v)
	}
	at := kernels.Attr{F: [2]float64{c.Scale, c.Cap}, I: [4]int{0, c.Window, c.Tile}}
	if c.Causal {
		at.I[0] = 1
	}
	sink := c.Sink
	if sink != nil {
		sink = t.sinks(sink, q)
	}
	if x != nil {
		s := &shared{sharing: x, at: at, q: q, k: k, v: v, cuQ: cuQ, cuK: cuK, sink: sink}
		if ring && c.Carry != "" {
			s.earlier = t.carryParts(s, c.Carry)
		}
		return t.restore(t.attend(s))
	}
	if dealt {
		q = t.natural(q)
		if c.Near != nil { // positions are those of tokens, and lie as they do
			c.PosQ, c.PosK = t.natural(c.PosQ), t.natural(c.PosK)
		}
	}
	in := []*Value{q, k, v, cuQ, cuK}
	if c.Blocks != nil || c.Near != nil {
		in = append(in, c.Blocks, c.PosQ, c.PosK, c.Near)
	}
	op := opAttn
	if sink != nil {
		op = opAttnKept
	} else if c.Peak != "" {
		op, in = opAttnPeak, append(in, t.peaks(c.Peak, q))
	}
	n := t.emit(op, at, in, spec{[]int{q.Shape[0], q.Shape[1], v.Shape[2]}, q.DType, q.Place},
		spec{q.Shape[:2], tensor.F32, q.Place})
	if sink != nil {
		n = t.sunk(at, n.Out[0], n.Out[1], sink, in)
	}
	o := n.Out[0]
	if dealt {
		o = t.deal(o)
	}
	return t.restore(o)
}

// keys brings keys or values to the heads that members have of q; with a ring their rows stay where they are.
func (t *Tape) keys(k, q *Value, ring bool) *Value {
	heads, have := q.Place, k.Place
	for m := range heads {
		if heads[m] == (Part{Sharded, 0}) && !ring {
			heads[m] = Part{}
		}
		if have[m] != (Part{Sharded, 1}) && have[m] != heads[m] {
			have[m] = Part{}
		}
	}
	k = t.to(k, have)
	axes := q.Place.Cuts(1)
	if k.Shape[1]%t.Members(axes) == 0 {
		return t.to(k, heads)
	}
	slices.SortStableFunc(axes, func(a, b int) int { // as heads are cut
		if t.within(a, b, 1) {
			return 1
		}
		return -1
	})
	return t.pick(k, axes)
}

// pick takes, of key heads that are fewer than the members along some mesh axes, the one that this member's
// query heads use. The logical result repeats each head, so it is sharded like the queries.
func (t *Tape) pick(k *Value, axes []int) *Value {
	n, g := t.Members(axes), k.Shape[1]
	if n%g != 0 {
		panic(fmt.Sprintf("grad: %d key heads over the %d ranks of %v", g, n, t.Mesh))
	}
	k = t.WholeWidth(k)
	p := k.Place
	for _, m := range axes {
		p[m] = Part{Sharded, 1}
	}
	v := t.one(opPick, kernels.Attr{}, k.DType, []int{k.Shape[0], n, k.Shape[2]}, p, k)
	v.Node.Axes = axes
	return v
}

// attentionVJP is the gradient of attention. One kernel gives those of queries, keys and values, so it runs as soon as
// any of them is wanted; o and the logarithms of the sums are taken from the forward.
func attentionVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	q, k, v := n.In[0], n.In[1], n.In[2]
	g := make([]*Value, len(n.In))
	if !leg(0) && !leg(1) && !leg(2) {
		return g
	}
	t.phase = I
	d := t.to(dy[0], n.Out[0].Place)
	b := t.emit(opAttnBwd, n.Attr, append([]*Value{d, q, k, v, n.Out[0], n.Out[1]}, n.In[3:]...),
		spec{q.Shape, q.DType, q.Place}, spec{k.Shape, k.DType, k.Place}, spec{v.Shape, v.DType, v.Place})
	copy(g, b.Out)
	return g
}

var opSwiGLU, opSwiGLUBwd, opSum, opMul, opScale *Op

func init() {
	opSwiGLUBwd = &Op{Name: "swiglu_bwd", Kernel: kernels.SwiGLUBwd}
	opSwiGLU = &Op{Name: "swiglu", Kernel: kernels.SwiGLU, Cheap: true,
		VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
			leg(0)
			s := spec{n.In[0].Shape, n.In[0].DType, n.Out[0].Place}
			return t.emit(opSwiGLUBwd, n.Attr, []*Value{t.to(dy[0], n.Out[0].Place), n.In[0], n.In[1]}, s, s).Out
		}}
	opSum = &Op{Name: "sum", Kernel: kernels.Sum, VJP: func(t *Tape, n *Node, dy []*Value,
		leg func(int) bool) []*Value {
		g := make([]*Value, len(n.In))
		for i := range g {
			g[i] = dy[0]
		}
		return g
	}}
	opMul = &Op{Name: "mul", Kernel: kernels.Mul, VJP: func(t *Tape, n *Node, dy []*Value,
		leg func(int) bool) []*Value {
		g := make([]*Value, 2)
		for i := range g {
			if leg(i) {
				g[i] = t.one(opMul, n.Attr, dy[0].DType, dy[0].Shape, n.Out[0].Place,
					t.to(dy[0], n.Out[0].Place), n.In[1-i])
			}
		}
		return g
	}}
	opScale = &Op{Name: "scale", Kernel: kernels.Scale, VJP: func(t *Tape, n *Node, dy []*Value,
		leg func(int) bool) []*Value {
		if !leg(0) {
			return []*Value{nil}
		}
		return []*Value{t.one(opScale, n.Attr, dy[0].DType, dy[0].Shape, dy[0].Place, dy[0])}
	}}
}

// SwiGLU is g·sigmoid(g)·u, elementwise.
func (t *Tape) SwiGLU(g, u *Value) *Value {
	g, u = t.full(g), t.full(u)
	u = t.to(u, g.Place)
	return t.one(opSwiGLU, kernels.Attr{}, g.DType, g.Shape, g.Place, g, u)
}

// Mul is the elementwise product.
func (t *Tape) Mul(a, b *Value) *Value {
	a, b = t.full(a), t.full(b)
	b = t.to(b, a.Place)
	return t.one(opMul, kernels.Attr{}, a.DType, a.Shape, a.Place, a, b)
}

// Scale is c·x; it is linear, so partial values stay partial.
func (t *Tape) Scale(x *Value, c float64) *Value {
	if due(x) {
		return t.ofTerms(x, func(_ int, v *Value) *Value { return t.Scale(v, c) })
	}
	return t.one(opScale, kernels.Attr{F: [2]float64{c}}, x.DType, x.Shape, x.Place, x)
}

// Add is a + b. A partial operand is brought to the placement of the other; two partial ones stay partial.
func (t *Tape) Add(a, b *Value) *Value {
	if due(a) && due(b) {
		return t.ofTerms(a, func(i int, v *Value) *Value { return t.Add(v, t.terms(b)[i]) })
	}
	if a.Place != b.Place {
		if a.Place.partial() && !b.Place.partial() {
			a = t.to(a, b.Place)
		} else {
			a = t.full(a)
			b = t.to(b, a.Place)
		}
	}
	return t.one(opSum, kernels.Attr{}, a.DType, a.Shape, a.Place, a, b)
}
