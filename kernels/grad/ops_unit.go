package grad

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opUnitRows *Op

func init() {
	opUnitRows = &Op{Name: "unit_rows", Kernel: kernels.RMSNorm, Cheap: true, VJP: unitRowsVJP}
}

// unitEps is the term under the root of UnitRows: PyTorch's bound of 1e-12 on a norm, squared.
const unitEps = 1e-24

// UnitRows divides each row of a table w [v d] by its Euclidean norm, times the root of d: what multiplies
// with it brings the factor 1/√d. Rows have a mean square of 1 then, which 16-bit numbers hold best.
func (t *Tape) UnitRows(w *Value) *Value { return t.unitRows(w).Out[0] }

// InverseNorms are one over the Euclidean norms of the rows of w [v d]: [v], without a gradient.
func (t *Tape) InverseNorms(w *Value) *Value {
	v := t.asType(t.unitRows(w).Out[1], w.DType)
	return t.Detach(t.Scale(v, 1/math.Sqrt(float64(w.Shape[1]))))
}

func (t *Tape) unitRows(w *Value) *Node {
	w = t.only(w, 0)
	at := kernels.Attr{F: [2]float64{unitEps}}
	return t.emit(opUnitRows, at, []*Value{w, t.ones(w.Shape[1], w.DType)}, spec{w.Shape, w.DType, w.Place},
		spec{w.Shape[:1], tensor.F32, w.Place})
}

// ones is a vector of ones.
func (t *Tape) ones(n int, d tensor.DType) *Value {
	v := make([]float32, n)
	for i := range v {
		v[i] = 1
	}
	return t.asType(t.Const("ones", v), d)
}

// unitRowsVJP works in float32, the dtype of gradients of weights, and leaves sums over members that are due
// for later: it is linear in dy.
func unitRowsVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, 2)
	if !leg(0) {
		return g
	}
	w, d := n.In[0], t.asType(dy[0], tensor.F32)
	g[0] = t.one(opNormDX, n.Attr, tensor.F32, w.Shape, d.Place, d, t.asType(w, tensor.F32),
		t.ones(w.Shape[1], tensor.F32), n.Out[1])
	return g
}
