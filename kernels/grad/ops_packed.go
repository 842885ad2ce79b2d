package grad

import (
	"github.com/lfactor/lfactor/kernels"
)

var opPacked, opPackedDX, opPackedGrouped, opPackedGroupedDX *Op

func init() {
	opPackedDX = &Op{Name: "packed_linear_dx", Kernel: kernels.PackedLinearDX}
	opPackedGroupedDX = &Op{Name: "packed_grouped_linear_dx", Kernel: kernels.PackedGroupedDX}
	opPackedGrouped = &Op{Name: "packed_grouped_linear", Kernel: kernels.PackedGrouped, VJP: packedGroupedVJP}
	opPacked = &Op{Name: "packed_linear", Kernel: kernels.PackedLinear, VJP: packedVJP}
}

// PackedLinear is Linear with a matrix of PackedParam: x [t k], w of n rows -> [t n]. Only x and bias have
// gradients. Where rows of w are shared out, every member reads all columns of x and gives columns of y.
func (t *Tape) PackedLinear(x, w, bias *Value, p kernels.Packing) *Value {
	w = t.full(w)
	rows, out, pb := t.packedPlaces(w, x, Part{}, Part{Sharded, 1})
	x = t.to(x, rows)
	in := []*Value{x, w, nil}
	if bias != nil {
		for m := range t.Mesh {
			if w.Place[m] == (Part{Sharded, 0}) {
				pb[m] = Part{Sharded, 0}
			}
		}
		in[2] = t.to(bias, pb)
	}
	return t.one(opPacked, p.Attr(), x.DType, []int{x.Shape[0], w.Shape[0]}, out, in...)
}

// packedPlaces are those of rows v [t .] and of what a product with w makes of them, where w is shared out:
// given and made; elsewhere rows may be shared out alike.
func (t *Tape) packedPlaces(w, v *Value, given, made Part) (rows, out, none Place) {
	for m := range t.Mesh {
		switch {
		case w.Place[m] == (Part{Sharded, 0}):
			rows[m], out[m] = given, made
		case v.Place[m] == (Part{Sharded, 0}):
			rows[m], out[m] = v.Place[m], v.Place[m]
		}
	}
	return rows, out, none
}

// packedVJP is the gradient of y = x·wᵀ + b where w does not learn.
func packedVJP(t *Tape, n *Node, dy []*Value, leg func(i int) bool) []*Value {
	g := make([]*Value, 3)
	x, w := n.In[0], n.In[1]
	rows, out, _ := t.packedPlaces(w, dy[0], Part{Sharded, 1}, Part{Kind: Partial})
	d := t.to(dy[0], rows)
	if leg(0) {
		g[0] = t.one(opPackedDX, n.Attr, d.DType, x.Shape, out, d, w)
	}
	if n.In[2] != nil && leg(2) {
		g[2] = t.rowSum(opColSum, d, n.In[2].Shape)
	}
	return g
}

// PackedGrouped is GroupedLinear with matrices [g n .] of PackedOn, that may be sharded over their groups:
// x [t k] -> [t n]. Only x has a gradient.
func (t *Tape) PackedGrouped(x, w, off *Value, p kernels.Packing) *Value {
	w, x, place := t.groupedProduct(w, x, "gnk", "tk", "tn", off, w.Place.Cuts(0))
	return t.one(opPackedGrouped, p.Attr(), x.DType, []int{x.Shape[0], w.Shape[1]}, place, x, w, off)
}

// packedGroupedVJP is the gradient of a product with matrices that do not learn.
func packedGroupedVJP(t *Tape, n *Node, dy []*Value, leg func(i int) bool) []*Value {
	g := make([]*Value, 3)
	if x, off := n.In[0], n.In[2]; leg(0) {
		w, d, place := t.groupedProduct(n.In[1], dy[0], "gnk", "tn", "tk", off, n.In[1].Place.Cuts(0))
		g[0] = t.one(opPackedGroupedDX, n.Attr, d.DType, x.Shape, place, d, w, off)
	}
	return g
}
