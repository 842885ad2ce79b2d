package grad

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Sparse attention by an indexer (DeepSeek-V3.2). Which keys a query sees is told row by row, so that rows
// may be shared out in any way: only keys are gathered.

var opVisible, opTopK, opSparse, opSparseBwd, opIndexLoss, opIndexLossBwd *Op

func init() {
	opVisible = &Op{Name: "visible_keys", Kernel: kernels.VisibleKeys, Args: 2}
	opTopK = &Op{Name: "index_topk", Kernel: kernels.IndexTopK}
	opSparseBwd = &Op{Name: "attention_sparse_bwd", Kernel: kernels.AttentionSparseBwd}
	opSparse = &Op{Name: "attention_sparse", Kernel: kernels.AttentionSparse, VJP: sparseVJP}
	opIndexLossBwd = &Op{Name: "index_loss_bwd", Kernel: kernels.IndexLossBwd}
	opIndexLoss = &Op{Name: "index_loss", Kernel: kernels.IndexLoss, VJP: indexLossVJP}
}

// Detach is x without a gradient.
func (t *Tape) Detach(x *Value) *Value {
	v := t.one(opAlias, kernels.Attr{}, x.DType, x.Shape, x.Place, x)
	v.Need, v.Name = false, x.Name
	return v
}

// SpreadRows shares the rows of x out over all ranks that have the same tokens, as far as they divide; its other
// axes become whole.
func (t *Tape) SpreadRows(x *Value) *Value {
	x = t.only(x, 0)
	p, n := x.Place, x.Shape[0]/t.Members(x.Place.Cuts(0))
	for m, a := range t.Mesh {
		if a.Name == TP && p[m].Kind == Replicated && a.Size > 1 && n%a.Size == 0 {
			p[m], n = Part{Sharded, 0}, n/a.Size
		}
	}
	return t.to(x, p)
}

// VisibleKeys says which rows of keys each of so many rows of queries sees, by the borders of packed sequences:
// [rows 2], and one over the number of queries in sequences [rows]. Rows are the microbatch's tokens as they lie.
func (t *Tape) VisibleKeys(cuQ, cuK *Value, rows int) (see, mean *Value) {
	n := t.emit(opVisible, kernels.Attr{}, []*Value{cuQ, cuK}, spec{[]int{rows, 2}, tensor.I32, Place{}},
		spec{[]int{rows}, tensor.F32, Place{}})
	return t.deal(n.Out[0]), t.deal(n.Out[1])
}

// everyKey brings keys, or what is made of them, together on every member in the order of the sequence.
// Those of earlier chunks, from Carry, are in order.
func (t *Tape) everyKey(k *Value, p Place) *Value {
	k = t.to(k, p)
	if t.Chunks == 1 {
		k = t.natural(k)
	}
	return k
}

// IndexTopK lists for each query the n keys of the best scores: of q [t h d], k [s 1 d] and w [t h] f32, among
// those that see [t 2] allows: [t n]. The list is kept: it is never made again.
func (t *Tape) IndexTopK(q, k, w, see *Value, n int, scale float64) *Value {
	q = t.only(q, 0)
	v := t.one(opTopK, kernels.Attr{F: [2]float64{scale}}, tensor.I32, []int{q.Shape[0], n}, q.Place, q,
		t.everyKey(k, Place{}), t.alongRows(w, q), t.alongRows(see, q))
	t.Keep(v)
	return v
}

// SparseAttention is attention of each query to the keys that it lists: q [t h d], k [s g d], v [s g e], idx
// [t n] -> [t h e]. Of all heads of the model, share have a key in common.
func (t *Tape) SparseAttention(q, k, v, idx *Value, share int, scale float64) *Value {
	q = t.tokenwise(q)
	k, v = t.keys(k, q, false), t.keys(v, q, false)
	if t.Chunks == 1 {
		k, v = t.natural(k), t.natural(v)
	}
	at := kernels.Attr{F: [2]float64{scale}, I: [4]int{share}}
	return t.emit(opSparse, at, []*Value{q, k, v, t.alongRows(idx, q)},
		spec{[]int{q.Shape[0], q.Shape[1], v.Shape[2]}, q.DType, q.Place},
		spec{q.Shape[:2], tensor.F32, q.Place}).Out[0]
}

// sparseVJP is the gradient of attention to listed keys. Keys and values are looked at by queries
// of several members, so their gradients may be partial sums.
func sparseVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	q, k, v := n.In[0], n.In[1], n.In[2]
	g := make([]*Value, len(n.In))
	if !leg(0) && !leg(1) && !leg(2) {
		return g
	}
	t.phase = I
	sums := t.sumOver(k.Place, q)
	copy(g, t.emit(opSparseBwd, n.Attr, []*Value{t.to(dy[0], n.Out[0].Place), q, k, v, n.Out[0], n.Out[1], n.In[3]},
		spec{q.Shape, q.DType, q.Place}, spec{k.Shape, k.DType, sums}, spec{v.Shape, v.DType, sums}).Out)
	return g
}

// sumOver is a placement with sums due over the members that have rows of q to themselves.
func (t *Tape) sumOver(p Place, q *Value) Place {
	for _, m := range q.Place.Cuts(0) {
		p[m] = Part{Kind: Partial}
	}
	return p
}

// Indexed are the operands of IndexLoss: what the indexer makes of tokens, Q [t m r], K [s 1 r] and W [t m]
// f32; attention's queries [t h d] and keys [s g d]; what VisibleKeys says; and the keys that each query
// lists [t n], nil for all that it sees.
type Indexed struct {
	Q, K, W, AttnQ, AttnK, See, Mean, List *Value
	Scale, AttnScale                       float64
}

// IndexLoss is how far the indexer's distribution over the keys of a query is from attention's, on the mean
// of all queries: [1], partial where their rows are shared out. Attention gets no gradient of it.
func (t *Tape) IndexLoss(x Indexed) *Value {
	q := t.only(x.Q, 0)
	var rows Place
	for _, m := range q.Place.Cuts(0) {
		rows[m] = Part{Sharded, 0}
	}
	in := []*Value{q, t.everyKey(x.K, Place{}), t.alongRows(x.W, q), t.to(t.Detach(x.AttnQ), rows),
		t.everyKey(t.Detach(x.AttnK), Place{}), t.alongRows(x.See, q), t.alongRows(x.Mean, q)}
	if x.List != nil {
		in = append(in, t.alongRows(x.List, q))
	}
	return t.one(opIndexLoss, kernels.Attr{F: [2]float64{x.Scale, x.AttnScale}}, tensor.F32, []int{1},
		t.sumOver(Place{}, q), in...)
}

// indexLossVJP is the gradient of the loss that trains the indexer. It goes to the indexer alone
// and not into the attention that it imitates.
func indexLossVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, len(n.In))
	if !leg(0) && !leg(1) && !leg(2) {
		return g
	}
	t.phase = I
	q, k, w := n.In[0], n.In[1], n.In[2]
	copy(g, t.emit(opIndexLossBwd, n.Attr, append([]*Value{t.to(dy[0], Place{})}, n.In...),
		spec{q.Shape, q.DType, q.Place}, spec{k.Shape, k.DType, t.sumOver(k.Place, q)},
		spec{w.Shape, tensor.F32, w.Place}).Out)
	return g
}
