package grad

import (
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opContrast, opContrastBwd *Op

var opTokenNLL, opObjective, opObjectiveBwd, opDivergence, opDivergenceBwd *Op

var opPagedRows = &Op{Name: "paged_rows", Kernel: kernels.PagedRows}

func init() {
	opTokenNLL = &Op{Name: "token_nll", Kernel: kernels.TokenNLL, Args: 3, VJP: tokenNLLVJP}
	opObjectiveBwd = &Op{Name: "objective_bwd", Kernel: kernels.ObjectiveBwd}
	opContrastBwd = &Op{Name: "contrast_bwd", Kernel: kernels.ContrastBwd}
	opContrast = &Op{Name: "contrast", Kernel: kernels.Contrast, VJP: lossVJP(opContrastBwd)}
	opDivergenceBwd = &Op{Name: "divergence_bwd", Kernel: kernels.DivergenceBwd}
	opDivergence = &Op{Name: "divergence", Kernel: kernels.Divergence, VJP: lossVJP(opDivergenceBwd)}
	opObjective = &Op{Name: "objective", Kernel: kernels.Objective, VJP: lossVJP(opObjectiveBwd)}
}

// TokenNLL is minus the log-probability of each row's target, 0 where there is none. Shapes: x [t d], w [v
// d] (sharded over the vocabulary or replicated), target [t] i32 (< 0: ignored) -> [t] in float32. A soft
// cap of most > 0 makes each logit z most·tanh(z/most). The bits are those of LinearCrossEntropy's terms.
func (t *Tape) TokenNLL(x, w, target *Value, most float64) *Value {
	if n := t.Sums[TP]; n > 1 {
		return t.nllInParts(x, w, target, most, n)
	}
	capped := kernels.Attr{F: [2]float64{most}}
	axes := w.Place.Cuts(0)
	at := t.rows(x.Shape[0], axes)
	x, target = t.to(x, at), t.to(target, at)
	n, pl, ph, rows := t.Members(axes), at, at, x.Shape[0]
	for _, m := range axes {
		pl[m], ph[m] = Part{Sharded, 1}, Part{Kind: Partial}
	}
	a := t.emit(opLSE, capped, []*Value{x, w, target}, spec{[]int{rows, n}, tensor.F32, pl},
		spec{[]int{rows}, tensor.F32, ph})
	a.Axes = axes
	for _, v := range a.Out {
		v.Need = false // the gradient goes through token_nll alone
	}
	lse := t.one(opLSEJoin, kernels.Attr{}, tensor.F32, []int{rows}, at, t.to(a.Out[0], at))
	v := t.one(opTokenNLL, capped, tensor.F32, []int{rows}, at, lse, t.to(a.Out[1], at), target, x, w)
	v.Node.Axes = axes
	return v
}

// tokenNLLVJP is that of LinearCrossEntropy with the rows' cotangents as weights.
func tokenNLLVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, len(n.In))
	lse, target, x, w := n.In[0], n.In[2], n.In[3], n.In[4]
	in := []*Value{x, w, target, lse, t.to(dy[0], n.Out[0].Place), t.ones(1, tensor.F32)}
	if leg(3) {
		p := x.Place
		for _, m := range n.Axes {
			p[m] = Part{Kind: Partial}
		}
		g[3] = t.one(opCEDX, n.Attr, x.DType, x.Shape, p, in...)
		g[3].Node.Axes = n.Axes
	}
	if leg(4) {
		if g[3] != nil {
			t.phase = g[3].Node.Phase
		}
		p := w.Place
		for _, m := range x.Place.Cuts(0) {
			p[m] = Part{Kind: Partial}
		}
		g[4] = t.one(opCEDW, n.Attr, tensor.F32, w.Shape, p, in...)
		g[4].Node.Axes = n.Axes
	}
	return g
}

// Objective is a loss over rows with log-probabilities sign·x [t], which every member has whole: seq [t]
// i32, weight [t] and more [t objective.Columns] are as in objective.Rows -> [1].
func (t *Tape) Objective(x, seq, weight, more *Value, l *objective.Loss, p objective.Params, sign float64) *Value {
	a := kernels.Attr{I: [4]int{l.Number()}, F: [2]float64{sign}}
	return t.one(opObjective, a, tensor.F32, []int{1}, Place{}, t.undealt(x), seq, weight, more,
		t.Const("objective", p.Vector()))
}

// undealt are rows of tokens, all of them on every member, for losses that read sequences as runs of rows: of rows that
// are dealt out in zigzag there are none, and no plan has such a loss then.
func (t *Tape) undealt(x *Value) *Value {
	if t.dealt() > 0 {
		panic("grad: a loss over sequences of " + x.Name + ", whose rows are dealt out in zigzag")
	}
	return t.to(x, Place{})
}

// MeanLogits is the mean of each row of logits x·wᵀ, without their products: a row's product with the mean of w's rows.
// It has no gradient. Shapes: x [t d], w [v d] (sharded over the vocabulary or replicated) -> [t] in float32.
func (t *Tape) MeanLogits(x, w *Value) *Value {
	x, w = t.Detach(x), t.Detach(w)
	mean := t.View(t.Scale(t.to(t.rowSum(opColSum, w, w.Shape[1:]), Place{}), 1/float64(w.Shape[0])), 1, w.Shape[1])
	return t.View(t.Linear32(t.asType(t.undealt(x), tensor.F32), mean, nil), x.Shape[0])
}

// Observed is what objective.Loss.Look gives of the rows of a loss that Objective has made, without a gradient:
// Frame.Observed gives it when the forward has ended. z [t] are means of rows of logits, nil for none. A tape observes one.
func (t *Tape) Observed(loss, z *Value) {
	in := slices.Clone(loss.Node.In)
	if z != nil {
		in = append(in, t.undealt(z))
	}
	t.observed = t.one(opObjective, loss.Node.Attr, tensor.F32, []int{objective.Looked}, Place{}, in...)
	t.observed.Need = false
}

// lossVJP is that of losses whose gradient is an operation on what they read, with the cotangent behind.
func lossVJP(bwd *Op) func(*Tape, *Node, []*Value, func(int) bool) []*Value {
	return func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
		g := make([]*Value, len(n.In))
		if leg(0) {
			g[0] = t.one(bwd, n.Attr, tensor.F32, n.In[0].Shape, Place{}, append(slices.Clone(n.In), t.to(dy[0], Place{}))...)
		}
		return g
	}
}

// Divergence is a loss of logits z [t v] beside a teacher's, of which every member has all: teacher [t v] in
// float32, weight [t] -> [1].
func (t *Tape) Divergence(z, teacher, weight *Value, l *objective.Loss, p objective.Params) *Value {
	return t.one(opDivergence, kernels.Attr{I: [4]int{l.Number()}}, tensor.F32, []int{1}, Place{}, t.undealt(z),
		teacher, weight, t.Const("divergence", p.Vector()))
}

// Contrast is a loss over the vectors of sequences, of which every member has all rows x [t d]: seq [t] i32,
// weight [t] and more [t objective.Columns] are as in objective.Vectors -> [1].
func (t *Tape) Contrast(x, seq, weight, more *Value, l *objective.Loss, p objective.Params) *Value {
	if x = t.undealt(x); x.DType != tensor.F32 {
		x = t.one(opCast, kernels.Attr{}, tensor.F32, x.Shape, Place{}, x)
	}
	return t.one(opContrast, kernels.Attr{I: [4]int{l.Number()}}, tensor.F32, []int{1}, Place{}, x, seq, weight, more,
		t.Const("contrast", p.Vector()))
}

// PagedRows are rows of pool [p …] and of v [t …], which the same rank has: row at[i] of pool, or row
// -1-at[i]
// of v where that is negative. It has no gradient. Shapes: at [s] i32 -> [s …].
func (t *Tape) PagedRows(pool, v, at *Value) *Value {
	shape := append([]int{at.Shape[0]}, v.Shape[1:]...)
	return t.one(opPagedRows, kernels.Attr{}, v.DType, shape, Place{}, pool, t.to(v, Place{}), at)
}
