package block

import (
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/routing"
)

// BalanceKind is a loss that keeps experts evenly used.
type BalanceKind int

// Kinds of losses of balance, of counts n and shares p of the router's scores, over N tokens and E experts
// of which k are chosen.
const (
	NoBalance BalanceKind = iota
	// PooledBalance takes the tokens of all layers together, as transformers does: E·Σ(n/N)·(p/N), which is
	// k for even sharing.
	PooledBalance
	// LayerBalance adds up one loss a layer, as Megatron-LM does: E/k·Σ(n/N)·(p/N), which is 1 for even sharing.
	LayerBalance
	// SequenceBalance is LayerBalance of each sequence by itself, and the mean of those: it does not depend
	// on how sequences are packed.
	SequenceBalance
	// BatchBalance is LayerBalance with counts of all replicas' samples and of the step's microbatches so
	// far, as Megatron-LM's global_aux_loss has it: E/k·Σ(n/N)·(p/N) with N of all replicas, so that the
	// parts of all replicas add up to 1 for even sharing.
	BatchBalance
)

// Balance asks for losses of the router.
type Balance struct {
	Kind  BalanceKind
	Scale float64 // what the loss of balance is multiplied with
	Z     float64 // factor on the mean of (log Σ exp logits)², one a layer (arXiv:2202.08906)
}

// Pooled reports whether layers hand their counts and shares to the end of the model.
func (b Balance) Pooled() bool { return b.Kind == PooledBalance && b.Scale != 0 }

// Added reports whether layers add up losses of their own.
func (b Balance) Added() bool { return b.Kind > PooledBalance && b.Scale != 0 || b.Z != 0 }

// Stream is what layers with experts hand on to the next.
type Stream struct {
	Sums *grad.Value // counts and shares so far [2 experts], nil for none
	Loss *grad.Value // losses so far [1 1], nil for none
}

// balance adds a layer's part to the record's; in an evaluation too, since stages wait for it.
func (r *Rec) balance(logits *grad.Value, m Experts) {
	b, t := r.Balance, r.T
	if b.Pooled() { // of a softmax over all experts, whatever the router is
		r.Routing.Sums = r.sum(r.Routing.Sums, t.BalanceSums(logits, r.Cu(), m.Each, routing.Softmax))
	}
	scale := b.Scale * float64(m.Experts) / float64(m.Each)
	switch {
	case scale == 0:
	case b.Kind == LayerBalance:
		sums := t.BalanceSums(logits, r.Cu(), m.Each, m.Router.Score)
		r.add(t.BalanceLoss(sums, m.Each, scale))
	case b.Kind == BatchBalance:
		sums := t.BalanceSums(logits, r.Cu(), m.Each, m.Router.Score)
		if !t.NoGrad { // an evaluation counts nothing
			sums = t.StepSums(sums)
		}
		r.add(t.BalanceLoss(sums, m.Each, scale))
	case b.Kind == SequenceBalance:
		r.add(t.BalanceEach(logits, r.Cu(), m.Each, m.Router.Score, scale))
	}
	if b.Z != 0 {
		r.add(t.ZLoss(logits, r.Cu(), b.Z))
	}
}

// add adds a layer's loss [1].
func (r *Rec) add(loss *grad.Value) {
	r.Routing.Loss = r.sum(r.Routing.Loss, r.T.View(loss, 1, 1))
}

// sum adds up the losses of the layers; have is nil before the first.
func (r *Rec) sum(have, more *grad.Value) *grad.Value {
	if have == nil {
		return more
	}
	return r.T.Add(have, more)
}

// RouterLosses adds what the layers have handed on to the model's loss; experts and each are those of its layers.
func (r *Rec) RouterLosses(experts, each int) {
	if s := r.Routing.Sums; s != nil {
		r.T.Loss(r.T.BalanceLoss(s, each, r.Balance.Scale*float64(experts)))
	}
	if l := r.Routing.Loss; l != nil {
		r.T.Loss(r.T.View(l, 1))
	}
}
