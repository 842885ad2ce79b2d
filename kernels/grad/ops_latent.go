package grad

import "github.com/lfactor/lfactor/kernels"

var opJoinHeads, opJoinHeadsBwd *Op

func init() {
	opJoinHeadsBwd = &Op{Name: "join_heads_bwd", Kernel: kernels.JoinHeadsBwd}
	opJoinHeads = &Op{Name: "join_heads", Kernel: kernels.JoinHeads, Cheap: true, VJP: joinHeadsVJP}
}

// JoinHeads puts a part that all heads share before each head's own: shared [t 1 r], each [t h n] -> [t h
// r+n].
func (t *Tape) JoinHeads(shared, each *Value) *Value {
	each = t.only(each, 0, 1)
	p := each.Place
	for _, m := range p.Cuts(1) {
		p[m] = Part{}
	}
	shared = t.to(shared, p)
	shape := []int{each.Shape[0], each.Shape[1], shared.Shape[2] + each.Shape[2]}
	return t.one(opJoinHeads, kernels.Attr{}, each.DType, shape, each.Place, shared, each)
}

func joinHeadsVJP(t *Tape, n *Node, dy []*Value, leg func(i int) bool) []*Value {
	shared, each := n.In[0], n.In[1]
	if !leg(0) && !leg(1) {
		return make([]*Value, 2)
	}
	t.phase = I
	sum := shared.Place
	for _, m := range each.Place.Cuts(1) { // each member has some of the heads
		sum[m] = Part{Kind: Partial}
	}
	return t.emit(opJoinHeadsBwd, n.Attr, []*Value{t.to(dy[0], n.Out[0].Place)},
		spec{shared.Shape, shared.DType, sum}, spec{each.Shape, each.DType, each.Place}).Out
}
