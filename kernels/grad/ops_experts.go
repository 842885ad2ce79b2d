package grad

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opGateRows, opGateRowsBwd, opSurplus, opJitter, opZLoss, opZLossBwd, opEach, opEachBwd *Op

var opLinear32, opRoute, opRouteBwd, opRouteOrder, opSpread, opSpreadGrad, opMix, opMixGrad, opMixDW, opSums,
	opSumsBwd, opBalance, opBalanceBwd *Op

//lfvet:long a list of operations
func init() {
	opLinear32 = &Op{Name: "linear32", Kernel: kernels.Linear, VJP: linear32VJP}
	opRouteBwd = &Op{Name: "route_bwd", Kernel: kernels.RouteBwd}
	opRoute = &Op{Name: "route", Kernel: kernels.Route, VJP: func(t *Tape, n *Node, dy []*Value,
		leg func(int) bool) []*Value {
		g := make([]*Value, 3)
		x := n.In[0]
		if leg(0) && dy[0] != nil {
			g[0] = t.one(opRouteBwd, n.Attr, x.DType, x.Shape, x.Place, t.to(dy[0], n.Out[0].Place), x, n.Out[1])
		}
		if n.In[1] != nil && leg(1) {
			idx := t.counted(n.Out[1])
			g[1] = t.one(opSurplus, kernels.Attr{}, tensor.F32, n.In[1].Shape, idx.Place.sumOfRows(), idx, n.In[2])
			g[1].Node.Axes = idx.Place.Cuts(0)
		}
		return g
	}, Args: 2}
	fuses[kernels.Surplus] = true
	opRouteKind = routeOfKind()
	opSurplus = &Op{Name: "surplus", Kernel: kernels.Surplus}
	opJitter = &Op{Name: "jitter", Kernel: kernels.Jitter, Cheap: true,
		VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
			g := make([]*Value, 2)
			if leg(0) {
				x := n.In[0]
				g[0] = t.one(opJitter, n.Attr, x.DType, x.Shape, x.Place, t.to(dy[0], n.Out[0].Place), n.In[1])
			}
			return g
		}}
	opGateRowsBwd = &Op{Name: "gate_rows_bwd", Kernel: kernels.GateRowsBwd}
	opGateRows = &Op{Name: "gate_rows", Kernel: kernels.GateRows, Cheap: true,
		VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
			g := make([]*Value, 2)
			x, z := n.In[0], n.In[1]
			if !leg(0) && !leg(1) {
				return g
			}
			t.phase = I
			copy(g, t.emit(opGateRowsBwd, kernels.Attr{}, []*Value{t.to(dy[0], x.Place.dual()), x, z},
				spec{x.Shape, x.DType, x.Place.dual()}, spec{z.Shape, tensor.F32, x.Place}).Out)
			return g
		}}
	opZLossBwd, opEachBwd = &Op{Name: "z_loss_bwd", Kernel: kernels.ZLossBwd}, &Op{Name: "balance_each_bwd",
		Kernel: kernels.BalanceEachBwd}
	opZLoss, opEach = lossOfLogits("z_loss", kernels.ZLoss, opZLossBwd),
		lossOfLogits("balance_each", kernels.BalanceEach, opEachBwd)
	opRouteOrder = &Op{Name: "route_order", Kernel: kernels.RouteOrder}
	opSpreadGrad, opMixGrad = &Op{Name: "spread_grad", Kernel: kernels.Mix},
		&Op{Name: "mix_grad", Kernel: kernels.Spread}
	opSpread = &Op{Name: "spread", Kernel: kernels.Spread, VJP: func(t *Tape, n *Node, dy []*Value,
		leg func(int) bool) []*Value {
		g := make([]*Value, len(n.In))
		if leg(0) {
			x := n.In[0]
			g[0] = t.one(opSpreadGrad, kernels.Attr{}, x.DType, x.Shape, x.Place, t.to(dy[0], n.Out[0].Place), n.In[2])
		}
		return g
	}, Args: 2}
	opMixDW = &Op{Name: "mix_dw", Kernel: kernels.MixDW}
	opMix = &Op{Name: "mix", Kernel: kernels.Mix, VJP: mixVJP, Args: 3}
	opSumsBwd = &Op{Name: "balance_sums_bwd", Kernel: kernels.BalanceSumsBwd}
	opSums = &Op{Name: "balance_sums", Kernel: kernels.BalanceSums, VJP: func(t *Tape, n *Node, dy []*Value,
		leg func(int) bool) []*Value {
		g := make([]*Value, 2)
		if leg(0) {
			x := n.In[0]
			g[0] = t.one(opSumsBwd, n.Attr, x.DType, x.Shape, x.Place, t.to(dy[0], n.Out[0].Place.dual()), x, n.In[1])
			g[0].Node.Axes = n.Axes
		}
		return g
	}}
	opBalanceBwd = &Op{Name: "balance_loss_bwd", Kernel: kernels.BalanceLossBwd}
	opBalance = &Op{Name: "balance_loss", Kernel: kernels.BalanceLoss,
		VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
			if !leg(0) {
				return []*Value{nil}
			}
			x := n.In[0]
			return []*Value{t.one(opBalanceBwd, n.Attr, x.DType, x.Shape, x.Place, t.to(dy[0], Place{}), x)}
		}}
}

// Linear32 is x·wᵀ + bias in float32, whatever the dtype of its operands, and so are its gradients'
// products: logits of a router. Shapes: x [t k], w [n k], bias [n] or nil -> [t n].
func (t *Tape) Linear32(x, w, bias *Value) *Value {
	w, x, p := t.product(w, x, "nk", "tk", "tn")
	return t.one(opLinear32, kernels.Attr{}, tensor.F32, []int{x.Shape[0], w.Shape[0]}, p, x, w, bias)
}

// linear32VJP widens the other operand, so that a gradient is rounded once, as it leaves.
func linear32VJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, 3)
	d, x, w := dy[0], n.In[0], n.In[1]
	wide := func(v *Value) *Value { return t.asType(v, tensor.F32) }
	if leg(0) {
		w, d, p := t.product(wide(w), d, "nk", "tn", "tk")
		g[0] = t.asType(t.one(opLinearDX, kernels.Attr{}, tensor.F32, x.Shape, p, d, w), x.DType)
	}
	if leg(1) {
		d, x, p := t.product(d, wide(x), "tn", "tk", "nk")
		g[1] = t.one(opLinearDW, kernels.Attr{}, tensor.F32, w.Shape, p, d, x)
	}
	if n.In[2] != nil && leg(2) {
		g[2] = t.rowSum(opColSum, d, n.In[2].Shape)
	}
	return g
}

// Routed says where the tokens of a rank go. All of it is kept: it is never decided again.
type Routed struct {
	Weights *Value // of each token's experts, the best first: [t k] f32
	Experts *Value // [t k] i32
	Counts  *Value // rows that go to each place of experts of this rank's tokens: [places] i32
	from    *Value // the token and the place of its expert, by row: [t·k] i32
	slot    *Value // the row, by token and expert: [t k] i32
}

// Limit bounds the rows that an expert takes of a rank's tokens: at most Factor times the number under even
// sharing, rounded up; those of the greatest weights, or the first ones. A Factor of 0 is not a bound.
// Copies are places beyond one an expert, where experts lie a second time; a bound is of each place then.
type Limit struct {
	Factor   float64
	ByWeight bool
	Copies   int
}

// Route chooses k of the experts that logits [t e] f32 are about, for each token, and puts the rows of all
// tokens in order of experts. A bias [e] f32, or nil, takes part in the choice only; if it learns, it does
// by the rows of the sequences that cu cuts, else cu may be nil.
func (t *Tape) Route(logits, bias, cu *Value, k int, r routing.Router, most Limit) *Routed {
	if err := r.Check(logits.Shape[1], k); err != nil {
		panic("grad: route: " + err.Error())
	}
	logits = t.only(logits, 0)
	if bias != nil {
		bias = t.to(bias, Place{})
	}
	rows, p := logits.Shape[0], logits.Place
	n := t.emit(opRoute, kernels.RouterAttr(r), []*Value{logits, bias, cu},
		spec{[]int{rows, k}, tensor.F32, p}, spec{[]int{rows, k}, tensor.I32, p})
	return t.inOrder(n, n.Out[1], most)
}

// inOrder puts the rows of all tokens in order of experts, as a router n has weighed them.
func (t *Tape) inOrder(n *Node, experts *Value, most Limit) *Routed {
	logits, k := n.In[0], experts.Shape[1]
	rows, p := logits.Shape[0], logits.Place
	at := kernels.Attr{F: [2]float64{most.Factor}}
	if most.ByWeight {
		at.I[0] = 1
	}
	o := t.emit(opRouteOrder, at, []*Value{experts, n.Out[0]}, spec{[]int{rows * k}, tensor.I32, p},
		spec{[]int{rows, k}, tensor.I32, p}, spec{[]int{logits.Shape[1] + most.Copies}, tensor.I32, Place{}})
	n.Out[1].Need = false
	for _, v := range o.Out {
		v.Need = false
	}
	t.Keep(append(slices.Clone(n.Out), o.Out...)...)
	return &Routed{Weights: n.Out[0], Experts: experts, Counts: o.Out[2], from: o.Out[0], slot: o.Out[1]}
}

// Spread gives a row of x [t d] to each expert of each token, in order of experts: [t·k d].
func (t *Tape) Spread(x *Value, r *Routed) *Value {
	x = t.to(x, r.slot.Place)
	k := r.slot.Shape[1]
	return t.one(opSpread, kernels.Attr{I: [4]int{k}}, x.DType, []int{x.Shape[0] * k, x.Shape[1]}, x.Place,
		x, r.from, r.slot)
}

// Mix adds up what the experts of each token made of it, rows y [t·k d] as Spread gave them, by their weights: [t d].
func (t *Tape) Mix(y *Value, r *Routed) *Value {
	y = t.to(y, r.slot.Place)
	return t.one(opMix, kernels.Attr{}, y.DType, []int{r.slot.Shape[0], y.Shape[1]}, y.Place, y, r.slot,
		r.Weights, r.from)
}

// mixVJP is the gradient of a weighted sum of the rows that experts gave for a token: each row gets
// the token's gradient times its weight, and each weight the product of gradient and row.
func mixVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, len(n.In))
	x, slot, w, from := n.In[0], n.In[1], n.In[2], n.In[3]
	d := t.to(dy[0], n.Out[0].Place)
	if leg(0) {
		g[0] = t.one(opMixGrad, kernels.Attr{I: [4]int{slot.Shape[1]}}, x.DType, x.Shape, x.Place, d, from, w)
	}
	if leg(2) {
		g[2] = t.one(opMixDW, kernels.Attr{}, tensor.F32, w.Shape, w.Place, d, x, slot)
	}
	return g
}

// BalanceSums are, of the rows that sequences cut by cu have, how many would go to each expert and the experts' shares
// of the scores added up: [2 e], partial where tokens are shared out. Only shares have a gradient.
func (t *Tape) BalanceSums(logits, cu *Value, k int, score routing.Score) *Value {
	logits = t.counted(t.only(logits, 0))
	v := t.one(opSums, kernels.Attr{I: [4]int{k, int(score)}}, tensor.F32, []int{2, logits.Shape[1]},
		logits.Place.sumOfRows(), logits, cu)
	v.Node.Axes = logits.Place.Cuts(0)
	return v
}

// sumOfRows is the placement of a sum over rows placed p.
func (p Place) sumOfRows() (out Place) {
	for _, m := range p.Cuts(0) {
		out[m] = Part{Kind: Partial}
	}
	return
}

// counted are rows of tokens as borders count them: as they lie, or where they are dealt out in zigzag, so that a
// member's rows are no run, all of them in their natural order on every member.
func (t *Tape) counted(v *Value) *Value {
	if t.dealt() == 0 {
		return v
	}
	return t.natural(t.to(v, Place{}))
}

// lossOfLogits is an operation that makes one number of logits and the borders of sequences.
func lossOfLogits(name string, k kernels.Op, back *Op) *Op {
	return &Op{Name: name, Kernel: k, VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
		g := make([]*Value, 2)
		if leg(0) {
			x := n.In[0]
			g[0] = t.one(back, n.Attr, x.DType, x.Shape, x.Place, t.to(dy[0], n.Out[0].Place.dual()), x, n.In[1])
			g[0].Node.Axes = n.Axes
		}
		return g
	}}
}

// ZLoss is scale times the mean, over the rows that sequences cut by cu have, of (log Σ exp logits)²: [1],
// partial where tokens are shared out (arXiv:2202.08906).
func (t *Tape) ZLoss(logits, cu *Value, scale float64) *Value {
	logits = t.counted(t.only(logits, 0))
	v := t.one(opZLoss, kernels.Attr{F: [2]float64{scale}}, tensor.F32, []int{1}, logits.Place.sumOfRows(), logits, cu)
	v.Node.Axes = logits.Place.Cuts(0)
	return v
}

// BalanceEach is scale times the mean over sequences of Σ nᵢ·pᵢ/N² of each: [1]. Sequences have to be whole
// on every rank.
func (t *Tape) BalanceEach(logits, cu *Value, k int, score routing.Score, scale float64) *Value {
	at := kernels.Attr{I: [4]int{k, int(score)}, F: [2]float64{scale}}
	return t.one(opEach, at, tensor.F32, []int{1}, Place{}, t.natural(t.to(logits, Place{})), cu)
}

// GateRows is sigmoid(z[i])·x[i]: x [t d], which may be partial, and z [t 1] f32.
func (t *Tape) GateRows(x, z *Value) *Value {
	if due(x) {
		return t.ofTerms(x, func(_ int, v *Value) *Value { return t.GateRows(v, z) })
	}
	if len(x.Place.Cuts(1)) > 0 {
		x = t.only(x, 0)
	}
	return t.one(opGateRows, kernels.Attr{}, x.DType, x.Shape, x.Place, x, t.to(z, x.Place.dual()))
}

// Jitter multiplies each element of x [t d] with a number within most of 1, drawn by key [t] and draw as dropout's.
func (t *Tape) Jitter(x, key *Value, most float64, draw int) *Value {
	if most == 0 {
		return x
	}
	x = t.only(x, 0)
	return t.one(opJitter, kernels.Attr{F: [2]float64{most}, I: [4]int{draw}}, x.DType, x.Shape, x.Place, x,
		t.to(key, x.Place))
}

// View is x in another shape of the same size; every rank has the whole.
func (t *Tape) View(x *Value, shape ...int) *Value {
	x = t.to(x, Place{})
	return t.one(opAlias, kernels.Attr{}, x.DType, shape, x.Place, x)
}

// BalanceLoss is scale·Σ nᵢ·pᵢ/N² of the counts n and the shares p of BalanceSums, where N is the rows that
// were counted: [1].
func (t *Tape) BalanceLoss(sums *Value, k int, scale float64) *Value {
	if len(sums.Shape) != 2 || sums.Shape[0] != 2 {
		panic(fmt.Sprintf("grad: a loss of balance of %v", sums.Shape))
	}
	return t.one(opBalance, kernels.Attr{I: [4]int{k}, F: [2]float64{scale}}, tensor.F32, []int{1}, Place{},
		t.to(sums, Place{}))
}
