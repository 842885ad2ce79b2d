package grad

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opGrouped, opGroupedDX, opGroupedDW *Op

func init() {
	fuses[kernels.GroupedLinearDW] = true
	opGroupedDX = &Op{Name: "grouped_linear_dx", Kernel: kernels.GroupedLinearDX}
	opGroupedDW = &Op{Name: "grouped_linear_dw", Kernel: kernels.GroupedLinearDW}
	opGrouped = &Op{Name: "grouped_linear", Kernel: kernels.GroupedLinear, VJP: groupedVJP}
}

// GroupedLinear is x·w[i]ᵀ for the rows off[i]:off[i+1] of each group i, and 0 for rows of no group. Shapes: x [t k], w [g n k],
// off [g+1] i32 -> [t n]. Offsets count the rows of the whole x, so the sharding of rows is resolved; w may be sharded in its
// outputs or inputs, not over its groups.
func (t *Tape) GroupedLinear(x, w, off *Value) *Value {
	if len(w.Shape) != 3 || off.Shape[0] != w.Shape[0]+1 {
		panic(fmt.Sprintf("grad: %v offsets of groups for matrices %v", off.Shape, w.Shape))
	}
	w, x, p := t.product(t.only(w, 1, 2), t.only(x, 1), "gnk", "tk", "tn")
	return t.one(opGrouped, kernels.Attr{}, x.DType, []int{x.Shape[0], w.Shape[1]}, p, x, w, off)
}

func groupedVJP(t *Tape, n *Node, dy []*Value, leg func(i int) bool) []*Value {
	g := make([]*Value, 3)
	d, x, w, off := t.only(dy[0], 1), n.In[0], n.In[1], n.In[2]
	if leg(0) {
		w, d, p := t.product(w, d, "gnk", "tn", "tk")
		g[0] = t.one(opGroupedDX, kernels.Attr{}, d.DType, x.Shape, p, d, w, off)
	}
	if leg(1) {
		d, x, p := t.product(d, x, "tn", "tk", "gnk")
		g[1] = t.one(opGroupedDW, kernels.Attr{}, tensor.F32, w.Shape, p, d, x, off)
	}
	return g
}
