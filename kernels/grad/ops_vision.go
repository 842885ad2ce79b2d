package grad

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opLayerNorm, opLayerNormDX, opLayerNormDW, opAct, opActBwd, opTake, opTakeBwd, opScaleRows, opMulCols,
	opMulColsDW, opRopeAxes, opCast, opTurn, opTurnDW *Op

func init() {
	for _, op := range []kernels.Op{kernels.LayerNormDW, kernels.MulColsDW, kernels.TurnDW} {
		fuses[op] = true
	}
	opLayerNormDX = &Op{Name: "layernorm_dx", Kernel: kernels.LayerNormDX}
	opLayerNormDW = &Op{Name: "layernorm_dw", Kernel: kernels.LayerNormDW}
	opLayerNorm = &Op{Name: "layernorm", Kernel: kernels.LayerNorm, Cheap: true, VJP: normVJP(&opLayerNormDX, &opLayerNormDW)}
	opActBwd = &Op{Name: "act_bwd", Kernel: kernels.ActBwd}
	opAct = &Op{Name: "act", Kernel: kernels.Act, Cheap: true, VJP: func(t *Tape, n *Node, dy []*Value,
		leg func(int) bool) []*Value {
		if !leg(0) {
			return []*Value{nil}
		}
		x := n.In[0]
		return []*Value{t.one(opActBwd, n.Attr, x.DType, x.Shape, x.Place, t.to(dy[0], n.Out[0].Place), x)}
	}}
	opTakeBwd = &Op{Name: "take_bwd", Kernel: kernels.TakeBwd}
	opTake = &Op{Name: "take", Kernel: kernels.Take, Cheap: true, VJP: func(t *Tape, n *Node, dy []*Value,
		leg func(int) bool) []*Value {
		if !leg(0) {
			return []*Value{nil, nil}
		}
		x, d := n.In[0], t.to(dy[0], n.Out[0].Place) // in float32 where a product of weights follows
		return []*Value{t.one(opTakeBwd, n.Attr, d.DType, x.Shape, x.Place, d, n.In[1]), nil}
	}}
	opScaleRows = &Op{Name: "scale_rows", Kernel: kernels.ScaleRows, Cheap: true,
		VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
			if !leg(0) {
				return []*Value{nil, nil}
			}
			x := n.In[0]
			return []*Value{t.one(opScaleRows, n.Attr, x.DType, x.Shape, x.Place, t.to(dy[0], n.Out[0].Place), n.In[1]),
				nil}
		}}
	opMulColsDW = &Op{Name: "mul_cols_dw", Kernel: kernels.MulColsDW}
	opMulCols = &Op{Name: "mul_cols", Kernel: kernels.MulCols, Cheap: true,
		VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
			g := make([]*Value, 2)
			x, w := n.In[0], n.In[1]
			d := t.to(dy[0], n.Out[0].Place)
			if leg(0) {
				g[0] = t.one(opMulCols, n.Attr, x.DType, x.Shape, x.Place, d, w)
			}
			if leg(1) {
				g[1] = t.rowSum(opMulColsDW, d, w.Shape, x)
			}
			return g
		}}
	opRopeAxes = &Op{Name: "rope_axes", Kernel: kernels.RopeAxes}
	opCast = &Op{Name: "cast", Kernel: kernels.Cast, Cheap: true, VJP: func(t *Tape, n *Node, dy []*Value,
		leg func(int) bool) []*Value {
		if !leg(0) {
			return []*Value{nil}
		}
		x := n.In[0]
		return []*Value{t.one(opCast, kernels.Attr{}, x.DType, x.Shape, n.Out[0].Place, t.to(dy[0], n.Out[0].Place))}
	}}
	opTurnDW = &Op{Name: "turn_dw", Kernel: kernels.TurnDW}
	opTurn = &Op{Name: "turn", Kernel: kernels.Turn, VJP: turnVJP}
}

// normVJP is the gradient of a norm that gives two statistics for it, by its operations for x and for the scale.
func normVJP(dx, dw **Op) func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	return func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
		g := make([]*Value, 3)
		x, w, b, first, second := n.In[0], n.In[1], n.In[2], n.Out[1], n.Out[2]
		d := t.to(dy[0], n.Out[0].Place)
		if leg(0) {
			g[0] = t.one(*dx, n.Attr, x.DType, x.Shape, x.Place, d, x, w, first, second)
		}
		if leg(1) {
			g[1] = t.rowSum(*dw, d, w.Shape, x, first, second)
		}
		if b != nil && leg(2) {
			g[2] = t.rowSum(opColSum, d, b.Shape)
		}
		return g
	}
}

// turnVJP is the gradient of turning marked rows by learned angles: turning back, and for the
// angles a sum over the marked rows.
func turnVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, 3)
	x, angle, mark := n.In[0], n.In[1], n.In[2]
	d := t.to(dy[0], n.Out[0].Place)
	if leg(0) {
		at := n.Attr
		at.I[0] = -at.I[0]
		g[0] = t.one(opTurn, at, x.DType, x.Shape, x.Place, d, angle, mark)
	}
	if leg(1) {
		g[1] = t.rowSum(opTurnDW, d, angle.Shape, n.Out[0], mark)
	}
	return g
}

// Turn turns rows of x [t h d] whose mark [t] i32 is not 0 by angle [d/2], which learns; it copies the
// others. Pairs are (j, j+d/2).
func (t *Tape) Turn(x, angle, mark *Value) *Value {
	x, angle = t.only(x, 1), t.to(angle, Place{})
	return t.one(opTurn, kernels.Attr{I: [4]int{1}}, x.DType, x.Shape, x.Place, x, angle, mark)
}

// LayerNorm normalises the last axis of x [... d] to mean 0 and variance 1, times w [d] plus b [d]; b may be nil.
func (t *Tape) LayerNorm(x, w, b *Value, eps float64) *Value {
	x, w = t.only(x, upTo(len(x.Shape)-1)...), t.to(w, Place{})
	in := []*Value{x, w, nil}
	if b != nil {
		in[2] = t.to(b, Place{})
	}
	s := spec{x.Shape[:len(x.Shape)-1], tensor.F32, x.Place}
	return t.emit(opLayerNorm, kernels.Attr{F: [2]float64{eps}}, in, spec{x.Shape, x.DType, x.Place}, s, s).Out[0]
}

// Act applies an activation of kernels (GELU …), elementwise.
func (t *Tape) Act(x *Value, kind int) *Value {
	x = t.full(x)
	return t.one(opAct, kernels.Attr{I: [4]int{kind}}, x.DType, x.Shape, x.Place, x)
}

// Take picks rows: y[i] = x[idx[i]], zero where idx[i] is not a row of x. Shapes: x [s d], idx [t] i32 -> [t
// d]. It mixes rows, so their sharding is resolved.
func (t *Tape) Take(x, idx *Value) *Value {
	x = t.only(x, 1)
	shape := append([]int{idx.Shape[0]}, x.Shape[1:]...)
	return t.one(opTake, kernels.Attr{}, x.DType, shape, x.Place, x, idx)
}

// Indices are n constants, of which f says each.
func (t *Tape) Indices(name string, n int, f func(i int) int) *Value {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(f(i))
	}
	return t.ConstI32(name, out)
}

// ScaleRows is s[i]·x[i]; x [t d], s [t] float32, which has no gradient.
func (t *Tape) ScaleRows(x, s *Value) *Value {
	x, s = t.alongRuns(t.full(x), s)
	return t.one(opScaleRows, kernels.Attr{}, x.DType, x.Shape, x.Place, x, s)
}

// MulCols is x·w with the same vector w [d] for every row of x [... d].
func (t *Tape) MulCols(x, w *Value) *Value {
	x, w = t.only(x, upTo(len(x.Shape)-1)...), t.to(w, Place{})
	return t.one(opMulCols, kernels.Attr{}, x.DType, x.Shape, x.Place, x, w)
}

// RopeAxes gives cos and sin [t r] where frequency j of inv [r] turns with position axis[j] of pos [t a].
func (t *Tape) RopeAxes(pos, inv, axis *Value, scale float64) (cos, sin *Value) {
	pos = t.OwnTokens(pos)
	s := spec{[]int{pos.Shape[0], inv.Shape[0]}, tensor.F32, pos.Place}
	n := t.emit(opRopeAxes, kernels.Attr{F: [2]float64{scale}}, []*Value{pos, inv, axis}, s, s)
	return n.Out[0], n.Out[1]
}

// Join views n neighbouring rows of x [t d] as one: [t/n n·d].
func (t *Tape) Join(x *Value, n int) *Value {
	x = t.only(x)
	if x.Shape[0]%n != 0 {
		panic(fmt.Sprintf("grad: %d rows do not join by %d", x.Shape[0], n))
	}
	return t.one(opAlias, kernels.Attr{}, x.DType, []int{x.Shape[0] / n, x.Shape[1] * n}, x.Place, x)
}

// Cast brings data of the microbatch, or an activation of a component of another dtype, to the dtype of the block.
func (t *Tape) Cast(x *Value) *Value {
	if x.DType == t.DType {
		return x
	}
	x = t.full(x)
	return t.one(opCast, kernels.Attr{}, t.DType, x.Shape, x.Place, x)
}

// ConstI32 is Const for integers, as the axis of each rotary frequency.
func (t *Tape) ConstI32(name string, v []int32) *Value {
	c := t.one(opConst, kernels.Attr{Name: name}, tensor.I32, []int{len(v)}, Place{})
	c.Name, c.Const = name, tensor.Of(tensor.I32, v, len(v))
	return c
}
