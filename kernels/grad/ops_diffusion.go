package grad

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opModulate, opModulateDX, opModulateDW, opGate, opGateDY, opGateDW, opSinusoids, opPointLoss, opPointLossDX *Op

func init() {
	opModulateDX = &Op{Name: "modulate_dx", Kernel: kernels.ModulateDX}
	opModulateDW = &Op{Name: "modulate_dw", Kernel: kernels.ModulateDW}
	opModulate = &Op{Name: "modulate", Kernel: kernels.Modulate, Cheap: true, VJP: modulateVJP}
	opGateDY = &Op{Name: "gate_dy", Kernel: kernels.Gate}
	opGateDW = &Op{Name: "gate_dw", Kernel: kernels.ModulateDW}
	opGate = &Op{Name: "gate", Kernel: kernels.Gate, Cheap: true, VJP: gateVJP}
	opSinusoids = &Op{Name: "sinusoids", Kernel: kernels.Sinusoids}
	opPointLossDX = &Op{Name: "point_loss_dx", Kernel: kernels.PointLossDX}
	opPointLoss = &Op{Name: "point_loss", Kernel: kernels.PointLoss, VJP: pointLossVJP}
}

// Modulation says what Modulate does to rows before it scales and shifts them.
type Modulation struct {
	Norm int     // kernels.PlainRows, LayerRows or RMSRows, without parameters
	Eps  float64 // under the norm's root
	Plus float64 // what is added to the scale: 1 in transformers of diffusion, 0 in FiLM
}

// Modulate is z·(plus + s[g]) + b[g] of rows z of x, normed or plain, where g is what at says of the row's
// run: at [m] i32 has an index for each of m runs of rows of one length, as samples or tokens are. Shapes: x
// [… d], s [g d] and b [g d], which may be nil and which may be in float32 beside rows of another dtype.
func (t *Tape) Modulate(x, s, b, at *Value, m Modulation) *Value {
	last := len(x.Shape) - 1
	if x = t.full(x); m.Norm != kernels.PlainRows {
		x = t.only(x, upTo(last)...)
	}
	x, at = t.alongRuns(x, at)
	in := []*Value{x, t.alongLast(s, x), nil, at}
	if b != nil {
		in[2] = t.alongLast(b, x)
	}
	rows := spec{x.Shape[:last], tensor.F32, x.Place}
	out := []spec{{x.Shape, x.DType, x.Place}, rows, rows}
	out = out[:[]int{kernels.PlainRows: 1, kernels.LayerRows: 3, kernels.RMSRows: 2}[m.Norm]]
	return t.emit(opModulate, kernels.Attr{I: [4]int{m.Norm}, F: [2]float64{m.Eps, m.Plus}}, in, out...).Out[0]
}

// upTo lists the axes below n.
func upTo(n int) (l []int) {
	for i := range n {
		l = append(l, i)
	}
	return l
}

// alongLast brings v [g d] to the columns that members have of x.
func (t *Tape) alongLast(v, x *Value) *Value {
	var p Place
	for _, m := range x.Place.Cuts(len(x.Shape) - 1) {
		p[m] = Part{Sharded, 1}
	}
	return t.to(v, p)
}

// alongRuns brings what runs of rows of x have to the members that have the rows. Runs of more than a row
// may not be cut; an axis of the samples beside one of space has whole runs.
func (t *Tape) alongRuns(x, v *Value) (of, have *Value) {
	if v.Shape[0]%max(1, t.Members(x.Place.Cuts(0))) != 0 {
		p := x.Place
		for _, m := range p.Cuts(0) {
			p[m] = Part{}
		}
		x = t.to(x, p)
	}
	return x, t.alongRows(v, x)
}

// columnSums is the placement of sums [g d] over the rows that members have of x.
func columnSums(x *Value) (p Place) {
	for m, a := range x.Place {
		switch {
		case a.Kind != Sharded:
		case int(a.Axis) == len(x.Shape)-1:
			p[m] = Part{Sharded, 1}
		default:
			p[m] = Part{Kind: Partial}
		}
	}
	return p
}

// tableType is the dtype of the gradient of a table of modulations: that of other activations' where it is one.
func tableType(v *Value) tensor.DType {
	if v.Weight {
		return tensor.F32
	}
	return v.DType
}

// modulateVJP is the gradient of a normed row that is scaled and shifted by a row of a table. Scale
// and shift have their sums from one call, as it reads the same rows for both.
func modulateVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, 4)
	x, s, b, at := n.In[0], n.In[1], n.In[2], n.In[3]
	d := t.to(dy[0], n.Out[0].Place)
	if leg(0) {
		in := append([]*Value{d, x, s, at}, n.Out[1:]...)
		g[0] = t.one(opModulateDX, n.Attr, x.DType, x.Shape, x.Place, in...)
	}
	scale, shift := leg(1), b != nil && leg(2)
	if !scale && !shift {
		return g
	}
	if !s.Weight || b != nil && !b.Weight { // one call for both, so not later than either is wanted
		t.phase = I
	}
	p := columnSums(x)
	out := []spec{{s.Shape, tableType(s), p}}
	if shift {
		out = append(out, spec{b.Shape, tableType(b), p})
	}
	sums := t.emit(opModulateDW, n.Attr, append([]*Value{d, x, at}, n.Out[1:]...), out...)
	if scale {
		g[1] = sums.Out[0]
	}
	if shift {
		g[2] = sums.Out[1]
	}
	return g
}

// Gate is x + g[at]·y by rows, as Modulate has its tables: x, y [… d], g [g d]. x may be nil, which counts as 0.
func (t *Tape) Gate(x, y, g, at *Value) *Value {
	y = t.full(y)
	if x != nil {
		x = t.full(x)
		y = t.to(y, x.Place)
	}
	y, at = t.alongRuns(y, at)
	in := []*Value{y, t.alongLast(g, y), at, nil}
	if x != nil {
		in[3] = t.to(x, y.Place)
	}
	return t.one(opGate, kernels.Attr{}, y.DType, y.Shape, y.Place, in...)
}

// gateVJP is the gradient of x + y·gate: dy passes the gate again, the gate's table gets the sums
// of dy·y, and x gets dy as it is.
func gateVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, 4)
	y, table, at := n.In[0], n.In[1], n.In[2]
	d := t.to(dy[0], n.Out[0].Place)
	if leg(0) {
		g[0] = t.one(opGateDY, kernels.Attr{}, y.DType, y.Shape, y.Place, d, table, at)
	}
	if leg(1) {
		g[1] = t.one(opGateDW, kernels.Attr{}, tableType(table), table.Shape, columnSums(y), d, y, at)
	}
	if n.In[3] != nil {
		g[3] = d
	}
	return g
}

// Frequencies are those of the features of a time: period^(-k/(half - less)) for k < half, as diffusers
// computes them in float32.
func Frequencies(half int, period, less float64) []float32 {
	f, by := make([]float32, half), float32(-math.Log(period))
	for k := range f {
		f[k] = float32(math.Exp(float64(by * float32(k) / float32(float64(half)-less))))
	}
	return f
}

// Sinusoids are the features of times at [n] in float32 at frequencies f [h], each of scale·(at·f): sines
// and then cosines, or cosines first -> [n 2h]. They have no gradient.
func (t *Tape) Sinusoids(at, f *Value, scale float64, cosFirst bool) *Value {
	a := kernels.Attr{F: [2]float64{scale}}
	if cosFirst {
		a.I[0] = 1
	}
	at = t.full(at)
	return t.one(opSinusoids, a, t.DType, []int{at.Shape[0], 2 * f.Shape[0]}, at.Place, at, f)
}

// PointLoss is the sum over all elements of weight·mask·l(x, y), with l a loss of kernels (SquaredLoss …)
// and border that of HuberLoss. Shapes: x, y, mask [… d]; weight [m] in float32, of m runs of rows of one
// length as in Modulate -> [1]. mask may be nil. The gradient is to x.
func (t *Tape) PointLoss(x, y, weight, mask *Value, kind int, border float64) *Value {
	if y.Need {
		panic("grad: a loss of numbers has no gradient to what they are compared with")
	}
	x, weight = t.alongRuns(t.full(x), weight)
	in := []*Value{x, t.to(y, x.Place), weight, nil}
	if mask != nil {
		in[3] = t.to(mask, x.Place)
	}
	var p Place
	for m, a := range x.Place {
		if a.Kind == Sharded {
			p[m] = Part{Kind: Partial}
		}
	}
	return t.one(opPointLoss, kernels.Attr{I: [4]int{kind}, F: [2]float64{border}}, tensor.F32, []int{1}, p, in...)
}

// pointLossVJP is the gradient of a loss between single elements, which goes to the prediction alone.
func pointLossVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, 4)
	if leg(0) {
		x := n.In[0]
		g[0] = t.one(opPointLossDX, n.Attr, x.DType, x.Shape, x.Place, append(n.In[:4:4], dy[0])...)
	}
	return g
}
