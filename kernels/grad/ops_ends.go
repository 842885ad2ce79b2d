package grad

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opEmbed, opEmbedDW, opDropout, opConcat, opSlice *Op

func init() {
	opEmbedDW = &Op{Name: "embed_dw", Kernel: kernels.EmbedDW}
	opEmbed = &Op{Name: "embed", Kernel: kernels.Embed, VJP: func(t *Tape, n *Node, dy []*Value,
		leg func(int) bool) []*Value {
		g := make([]*Value, 2)
		if !leg(1) {
			return g
		}
		ids, w := n.In[0], n.In[1]
		p := w.Place
		for _, m := range ids.Place.Cuts(0) {
			p[m] = Part{Kind: Partial}
		}
		g[1] = t.one(opEmbedDW, kernels.Attr{}, tensor.F32, w.Shape, p, t.to(dy[0], ids.Place), ids)
		g[1].Node.Axes = n.Axes
		return g
	}}
	opDropout = &Op{Name: "dropout", Kernel: kernels.Dropout, Cheap: true,
		VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
			if !leg(0) {
				return []*Value{nil, nil}
			}
			d := t.to(dy[0], n.Out[0].Place)
			return []*Value{t.one(opDropout, n.Attr, d.DType, d.Shape, d.Place, d, n.In[1]), nil}
		}}
	opSlice = &Op{Name: "slice", Kernel: kernels.Slice}
	opConcat = &Op{Name: "concat", Kernel: kernels.Concat, VJP: func(t *Tape, n *Node, dy []*Value,
		leg func(int) bool) []*Value {
		g, at := make([]*Value, len(n.In)), 0
		for i, v := range n.In {
			if leg(i) {
				d := t.to(dy[0], n.Out[0].Place)
				g[i] = t.one(opSlice, kernels.Attr{I: [4]int{n.Attr.I[0], at}}, d.DType, v.Shape, d.Place, d)
			}
			at += v.Shape[n.Attr.I[0]]
		}
		return g
	}}
}

// Embed looks up ids [t] in w [v d]; with w sharded over the vocabulary the result is partial.
func (t *Tape) Embed(ids, w *Value) *Value {
	axes := w.Place.Cuts(0)
	ids = t.to(ids, t.rows(ids.Shape[0], axes))
	p := ids.Place
	for _, m := range axes {
		p[m] = Part{Kind: Partial}
	}
	v := t.one(opEmbed, kernels.Attr{}, w.DType, []int{ids.Shape[0], w.Shape[1]}, p, ids, w)
	v.Node.Axes = axes
	return v
}

// Dropout drops elements of x [t ...] with probability p; key [t] identifies each row and draw the call
// within the model.
func (t *Tape) Dropout(x, key *Value, p float64, draw int) *Value {
	if p == 0 {
		return x
	}
	x = t.only(x)
	return t.one(opDropout, kernels.Attr{F: [2]float64{p}, I: [4]int{draw}}, x.DType, x.Shape, x.Place, x, key)
}

// Concat joins values along an axis; it mixes that axis, so its sharding is resolved. The others lie as
// those of the first value do.
func (t *Tape) Concat(axis int, vs ...*Value) *Value {
	in, shape := make([]*Value, len(vs)), append([]int(nil), vs[0].Shape...)
	var others []int
	for i := range shape {
		if i != axis {
			others = append(others, i)
		}
	}
	shape[axis] = 0
	for i, v := range vs {
		in[i] = t.only(v, others...)
		if i > 0 {
			in[i] = t.to(in[i], in[0].Place)
		}
		shape[axis] += v.Shape[axis]
	}
	return t.one(opConcat, kernels.Attr{I: [4]int{axis}}, in[0].DType, shape, in[0].Place, in...)
}

var opGroupNLL = &Op{Name: "group_nll", Kernel: kernels.GroupNLL}

var opLSE, opLSEJoin, opNLL, opCEDX, opCEDW, opLogits *Op

func init() {
	opLSE = &Op{Name: "linear_lse", Kernel: kernels.LinearLSE}
	opLSEJoin = &Op{Name: "lse_join", Kernel: kernels.LSEJoin}
	opNLL = &Op{Name: "nll", Kernel: kernels.NLL, Args: 4, VJP: nllVJP}
	opCEDX = &Op{Name: "linear_ce_dx", Kernel: kernels.LinearCEDX}
	opCEDW = &Op{Name: "linear_ce_dw", Kernel: kernels.LinearCEDW}
	opLogits = &Op{Name: "logits", Kernel: kernels.Linear}
}

// LinearCrossEntropy is the weighted sum of the token losses -log softmax(x·wᵀ)[target], without ever
// holding the logits in float32. A soft cap of most > 0 makes each logit z most·tanh(z/most). Shapes:
// x [t d], w [v d] (sharded over the vocabulary or replicated), target [t] i32 (< 0: ignored), weight [t] f32 -> [1].
func (t *Tape) LinearCrossEntropy(x, w, target, weight *Value, most float64) *Value {
	capped := kernels.Attr{F: [2]float64{most}}
	axes := w.Place.Cuts(0)
	at := t.rows(x.Shape[0], axes) // of tokens
	x, target, weight = t.to(x, at), t.to(target, at), t.to(weight, at)
	n, pl, ph, sum := t.Members(axes), at, at, Place{}
	for _, m := range axes {
		pl[m], ph[m] = Part{Sharded, 1}, Part{Kind: Partial}
	}
	for _, m := range at.Cuts(0) {
		sum[m] = Part{Kind: Partial}
	}
	rows := x.Shape[0]
	out := []spec{{[]int{rows, n}, tensor.F32, pl}, {[]int{rows}, tensor.F32, ph}}
	if t.keepsLogits(x, w, n) {
		blocks := (w.Shape[0]/n + kernels.LSEBlock - 1) / kernels.LSEBlock
		out = append(out, spec{[]int{rows, w.Shape[0]}, x.DType, pl}, spec{[]int{rows, blocks * n}, tensor.F32, pl})
	}
	a := t.emit(opLSE, capped, []*Value{x, w, target}, out...)
	a.Axes = axes
	for _, v := range a.Out {
		v.Need = false // the gradient goes through nll alone
	}
	lse := t.one(opLSEJoin, kernels.Attr{}, tensor.F32, []int{rows}, at, t.to(a.Out[0], at))
	hit := t.to(a.Out[1], at)
	l := t.one(opNLL, capped, tensor.F32, []int{1}, sum, append([]*Value{lse, hit, target, weight, x, w},
		a.Out[2:]...)...)
	l.Node.Axes = axes
	return l
}

// ObservedBy has the losses of a LinearCrossEntropy's rows be seen by the groups, n of them, that rows are of: as Observed
// has figures, of each group a sum and of how many. Shape: group [t] i32.
func (t *Tape) ObservedBy(loss, group *Value, n int) {
	of := loss.Node.In
	sum := Place{}
	for _, m := range of[0].Place.Cuts(0) {
		sum[m] = Part{Kind: Partial}
	}
	v := t.one(opGroupNLL, kernels.Attr{}, tensor.F32, []int{1 + 2*n}, sum, of[0], of[1], of[2], t.to(group, of[0].Place))
	v.Need = false
	t.observed = t.to(v, Place{})
}

// keptLogits bounds the bytes of numerators that one microbatch's loss keeps for its backward, on one rank.
const keptLogits = 1 << 30

// keepsLogits tells whether the loss keeps the exponentials of its logits instead of multiplying x with w
// once more: a tenth of the time of a small model's step. Full recompute, a schedule that holds many
// microbatches or a large batch of a large vocabulary rather saves the memory; a table whose rows do not
// divide would need padding of the exponentials too. A loss that waits for a backward in one piece has none
// to keep; one in two has something to do in W with them.
func (t *Tape) keepsLogits(x, w *Value, shards int) bool {
	_, rc := t.of(t.block)
	size := int64(x.Shape[0]) * int64(w.Shape[0]/shards) * int64(x.DType.Size())
	if !t.Split && shards == 1 && x.Need && w.Need {
		return false
	}
	return t.KeepLogits && rc != RecomputeFull && w.Shape[0]%shards == 0 && !t.NoGrad &&
		(x.Need || w.Need) && size <= keptLogits
}

// nllVJP sends the loss straight to x and w: nll carries them as operands that only its gradient uses. Both
// gradients are made of the same gradient of the logits, whose products are a third of the loss's work. So
// where a backward comes in two and no exponentials are kept, the weights' is made with x's, in I: W would
// compute the logits once more, and the forward of a loss that cannot wait for W a third time.
func nllVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, len(n.In))
	lse, target, weight, x, w := n.In[0], n.In[2], n.In[3], n.In[4], n.In[5]
	in := append([]*Value{x, w, target, lse, weight, dy[0]}, n.In[6:]...)
	if leg(4) {
		p := x.Place
		for _, m := range n.Axes {
			p[m] = Part{Kind: Partial}
		}
		g[4] = t.one(opCEDX, n.Attr, x.DType, x.Shape, p, in...)
		g[4].Node.Axes = n.Axes
	}
	if leg(5) {
		if g[4] != nil && len(in) == 6 {
			t.phase = g[4].Node.Phase
		}
		p := w.Place
		for _, m := range x.Place.Cuts(0) {
			p[m] = Part{Kind: Partial}
		}
		g[5] = t.one(opCEDW, n.Attr, tensor.F32, w.Shape, p, in...)
		g[5].Node.Axes = n.Axes
	}
	return g
}

// Logits is x·wᵀ in float32, gathered, under a soft cap of most if that is not 0; for evaluation and sampling.
func (t *Tape) Logits(x, w *Value, most float64) *Value {
	w, x, p := t.product(w, x, "nk", "tk", "tn")
	z := t.to(t.one(opLogits, kernels.Attr{}, tensor.F32, []int{x.Shape[0], w.Shape[0]}, p, x, w, nil), Place{})
	if most == 0 {
		return z
	}
	return t.Scale(t.Act(t.Scale(z, 1/most), kernels.Tanh), most)
}
