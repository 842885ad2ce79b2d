package grad

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Peak says that rows of a parameter shrink where scores of attention are too great (kernels.PeakClip): each Rows
// rows belong to Heads heads, whose greatest scores are in the parameter Of; the first Whole of them shrink by all
// that the scores must, and the others by that to the power Power.
type Peak struct {
	Of          string // full name of the parameter of greatest scores [1 heads]
	Rows, Heads int
	Whole       int
	Limit       float64
	Power       float64
}

// PeakSuffix ends the names of the greatest scores of attention behind that of its module.
const PeakSuffix = ".greatest_scores"

var opAttnPeak, opPeak *Op

func init() {
	opPeak = &Op{Name: "attention_peak", Kernel: kernels.AttentionPeak}
	opAttnPeak = &Op{Name: "attention", Kernel: kernels.Attention, VJP: attentionPeakVJP, Args: 5}
}

// IsPeak reports whether a parameter is the greatest scores of attention.
func (p *Param) IsPeak() bool { return p.Rule.Op == kernels.LargestTo }

// peaks declares the greatest scores of attention of queries [t h d], which every rank has of all heads.
func (t *Tape) peaks(name string, q *Value) *Value {
	p := t.declare(name+PeakSuffix, tensor.F32, []int{1, q.Shape[1]}, Place{}, 0, false)
	p.Fixed, p.Largest, p.Rule = true, true, Rule{Op: kernels.LargestTo}
	return t.use(p)
}

// Shrinks says that a parameter that was declared shrinks as p says, whose name is that of a module.
func (t *Tape) Shrinks(name string, p Peak) {
	of := t.params[t.Full(name)]
	if of == nil || of.Frozen {
		return
	}
	p.Of = t.Full(p.Of + PeakSuffix)
	of.Peak = &p
}

// attentionPeakVJP is attentionVJP, with the greatest scores as the gradient of what keeps them.
func attentionPeakVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, len(n.In))
	plain := *n
	plain.In = n.In[:5]
	copy(g, attentionVJP(t, &plain, dy, leg))
	if !leg(5) {
		return g
	}
	q, k, peak := n.In[0], n.In[1], n.In[5]
	var place Place
	var heads []int
	for m, a := range t.Mesh {
		if a.Size > 1 && a.Fold == t.leaf(peak).Fold {
			place[m] = Part{Kind: Partial}
		}
		if q.Place[m] == (Part{Sharded, 1}) {
			heads = append(heads, m)
		}
	}
	g[5] = t.one(opPeak, n.Attr, tensor.F32, peak.Shape, place, q, k, n.In[3], n.In[4])
	g[5].Node.Axes = heads
	return g
}
