package grad

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Experts of which each set is for one kind of tokens, as ERNIE 4.5 has some for texts and some for images.
// The router of a set sees all tokens, whose rows lie where they lie for everything else; those of another
// kind go to none of its experts.

var opRouteKind [2]*Op

var opKindExperts, opKindSurplus, opKindRows *Op

// routeOfKind are the routers of tokens of kind 0 and of kind 1.
func routeOfKind() (out [2]*Op) {
	fuses[kernels.KindSurplus] = true
	opKindExperts = &Op{Name: "kind_experts", Kernel: kernels.KindExperts, Args: 2}
	opKindSurplus = &Op{Name: "kind_surplus", Kernel: kernels.KindSurplus}
	opKindRows = &Op{Name: "kind_rows", Kernel: kernels.KindRows, Cheap: true,
		VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
			g := make([]*Value, 2)
			if leg(0) {
				x := n.In[0]
				g[0] = t.one(opKindRows, n.Attr, x.DType, x.Shape, x.Place, t.to(dy[0], x.Place), n.In[1])
			}
			return g
		}}
	for kind := range out {
		out[kind] = &Op{Name: opRoute.Name, Kernel: kernels.Route, Args: 2,
			VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
				g := opRoute.VJP(t, n, dy, func(i int) bool { return i == 0 && leg(0) })
				if n.In[1] != nil && leg(1) {
					p := n.In[0].Place
					g[1] = t.one(opKindSurplus, kernels.Attr{}, tensor.F32, n.In[1].Shape, p.sumOfRows(),
						t.ofKind(n, n.In[2], kind))
					g[1].Node.Axes = p.Cuts(0)
				}
				return g
			}}
	}
	return out
}

// ofKind are the experts that a router has chosen for tokens of one kind, -1 for all others'.
func (t *Tape) ofKind(n *Node, kinds *Value, kind int) *Value {
	v := n.Out[1]
	return t.one(opKindExperts, kernels.Attr{I: [4]int{kind}}, v.DType, v.Shape, v.Place, v, kinds, n.In[0])
}

// RouteKind is Route for the tokens whose kinds [t] i32 are one of 0 and 1: others go to no expert, and Mix
// gives rows of zeros for them. A bias that learns does by the rows of that kind.
func (t *Tape) RouteKind(logits, bias, kinds *Value, kind, k int, r routing.Router, most Limit) *Routed {
	if err := r.Check(logits.Shape[1], k); err != nil {
		panic("grad: route: " + err.Error())
	}
	logits = t.only(logits, 0)
	if bias != nil {
		bias = t.to(bias, Place{})
	}
	rows, p := logits.Shape[0], logits.Place
	kinds = t.alongRows(kinds, logits)
	n := t.emit(opRouteKind[kind], kernels.RouterAttr(r), []*Value{logits, bias, kinds},
		spec{[]int{rows, k}, tensor.F32, p}, spec{[]int{rows, k}, tensor.I32, p})
	own := t.ofKind(n, kinds, kind)
	own.Need = false
	t.Keep(own)
	return t.inOrder(n, own, most)
}

// KindRows is x [t d] with zeros in place of rows whose kind is another.
func (t *Tape) KindRows(x, kinds *Value, kind int) *Value {
	x = t.only(x, 0)
	return t.one(opKindRows, kernels.Attr{I: [4]int{kind}}, x.DType, x.Shape, x.Place, x, t.alongRows(kinds, x))
}
