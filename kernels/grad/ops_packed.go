package grad

import (
	"github.com/lfactor/lfactor/kernels"
)

var opPacked, opPackedDX *Op

func init() {
	opPackedDX = &Op{Name: "packed_linear_dx", Kernel: kernels.PackedLinearDX}
	opPacked = &Op{Name: "packed_linear", Kernel: kernels.PackedLinear, VJP: packedVJP}
}

// PackedLinear is Linear with a matrix of PackedParam: x [t k], w of n rows -> [t n]. Only x and bias have
// gradients.
func (t *Tape) PackedLinear(x, w, bias *Value, p kernels.Packing) *Value {
	x = t.only(x, 0)
	in := []*Value{x, w, nil}
	if bias != nil {
		in[2] = t.to(bias, Place{})
	}
	return t.one(opPacked, p.Attr(), x.DType, []int{x.Shape[0], w.Shape[0]}, x.Place, in...)
}

// packedVJP is the gradient of y = x·wᵀ + b where w does not learn.
func packedVJP(t *Tape, n *Node, dy []*Value, leg func(i int) bool) []*Value {
	g := make([]*Value, 3)
	x, w := n.In[0], n.In[1]
	d := t.only(dy[0], 0)
	if leg(0) {
		g[0] = t.one(opPackedDX, n.Attr, d.DType, x.Shape, d.Place, d, w)
	}
	if n.In[2] != nil && leg(2) {
		g[2] = t.rowSum(opColSum, d, n.In[2].Shape)
	}
	return g
}
