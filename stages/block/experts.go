package block

import (
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/topology"
)

// Experts is a mixture of gated MLPs, of which each token goes to a few (arXiv:2101.03961, 2401.06066): the sum of what they make of
// it, by the router's weights. Experts are shared out over the mesh axis ep, and each of them over etp.
type Experts struct {
	Hidden, Inter int // Inter is the width of an expert
	Experts, Each int // how many there are, and how many a token goes to
	Router        routing.Router
	Limit         grad.Limit
}

// Size implements Part: the weights that a token passes, not those that there are.
func (m Experts) Size() int { return m.Hidden * (3*m.Each*m.Inter + m.Experts) }

// Record implements Part. Data: cu_seqlens for a loss of balance.
func (m Experts) Record(r *Rec, name string, h *grad.Value) *grad.Value {
	t := r.T
	h = t.Tokens(h)
	logits := t.Linear32(h, t.Param(name+".gate.weight", []int{m.Experts, m.Hidden}, -1, 1, true))
	r.balance(logits, m)
	to := t.Route(logits, nil, m.Each, m.Router, m.Limit)
	x, d := t.Dispatch(t.Spread(h, to), to.Counts, m.Experts, topology.EP, topology.ETP)
	w := func(which string, out, in, cut int) *grad.Value {
		return t.ParamOn(name+".experts."+which+".weight", []int{m.Experts, out, in}, true,
			grad.Cut{Mesh: topology.EP, Axis: 0, Unit: 1}, grad.Cut{Mesh: topology.ETP, Axis: cut, Unit: 1})
	}
	g := t.GroupedLinear(x, w("gate_proj", m.Inter, m.Hidden, 1), d.Off)
	u := t.GroupedLinear(x, w("up_proj", m.Inter, m.Hidden, 1), d.Off)
	y := t.GroupedLinear(t.SwiGLU(g, u), w("down_proj", m.Hidden, m.Inter, 2), d.Off)
	return t.Mix(t.Combine(y, d), to)
}

// BalanceKind is a loss that keeps experts evenly used.
type BalanceKind int

// Kinds of losses of balance, of counts n and shares p of the router's scores, over N tokens and E experts of which k are chosen.
const (
	NoBalance BalanceKind = iota
	// PooledBalance takes the tokens of all layers together, as transformers does: E·Σ(n/N)·(p/N), which is k for even sharing.
	PooledBalance
	// LayerBalance adds up one loss a layer, as Megatron-LM does: E/k·Σ(n/N)·(p/N), which is 1 for even sharing.
	LayerBalance
)

// Balance asks for a loss of balance.
type Balance struct {
	Kind  BalanceKind
	Scale float64 // what the loss is multiplied with
}

// On reports whether there is one to compute.
func (b Balance) On() bool { return b.Kind != NoBalance && b.Scale != 0 }

// Rows is what one layer hands to the next: the sums of BalanceSums, or the loss so far.
func (b Balance) Rows() int {
	if b.Kind == PooledBalance {
		return 2
	}
	return 1
}

// balance adds a layer's part to the record's; in an evaluation too, since stages wait for it.
func (r *Rec) balance(logits *grad.Value, m Experts) {
	b := r.Balance
	if !b.On() {
		return
	}
	var part *grad.Value
	if b.Kind == PooledBalance { // of a softmax over all experts, whatever the router is
		part = r.T.BalanceSums(logits, r.Cu(), m.Each, routing.Softmax)
	} else {
		sums := r.T.BalanceSums(logits, r.Cu(), m.Each, m.Router.Score)
		loss := r.T.BalanceLoss(sums, m.Each, b.Scale*float64(m.Experts)/float64(m.Each))
		part = r.T.View(loss, 1, 1)
	}
	if r.Balanced != nil {
		part = r.T.Add(r.Balanced, part)
	}
	r.Balanced = part
}

// BalanceLoss adds the loss of balance to the model's, at the end of the model; experts and each are those of its layers.
func (r *Rec) BalanceLoss(experts, each int) {
	switch {
	case r.Balanced == nil:
	case r.Balance.Kind == PooledBalance:
		r.T.Loss(r.T.BalanceLoss(r.Balanced, each, r.Balance.Scale*float64(experts)))
	default:
		r.T.Loss(r.T.View(r.Balanced, 1))
	}
}
