package grad

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Values that a step moves by sums over its batch and not by a gradient: code books (vector quantization, VQ) and other
// exponential moving averages, as the numbers that experts are chosen by are (Tape.Bias). The sums take the way of a
// gradient: they add up over microbatches, are reduced once a step over the ranks, and count only with its commit.

// Move makes a parameter anew: value and sums of a step [1 …], whole; with are the values of the parameters that its
// rule names, of this step where they were declared before; f are the rule's numbers.
type Move func(value, sums []float32, with [][]float32, f [2]float64)

// moves are the rules that are no operation of kernels, by name.
var moves = map[kernels.Op]Move{}

// RegisterMove adds a rule, which Moving takes. It is called when a package is loaded and panics if the name is taken.
func RegisterMove(name string, f Move) kernels.Op {
	op := kernels.Op("move_" + name)
	if moves[op] != nil {
		panic(fmt.Sprintf("grad: the rule %q is registered twice", name))
	}
	moves[op] = f
	return op
}

// Move is the rule's, nil where it is an operation of kernels.
func (r Rule) Move() Move { return moves[r.Op] }

// Average is the rule of an exponential moving average of sums with decay F[0]: v += (sums - v)·(1 - decay).
var Average = RegisterMove("average", func(value, sums []float32, _ [][]float32, f [2]float64) {
	for i, s := range sums {
		value[i] += float32(float64(s-value[i]) * (1 - f[0]))
	}
})

// Moving declares values [1 …] in float32 whatever the block's dtype, which lie in one piece: no plan cuts them. Each
// step makes them anew by a rule of RegisterMove with numbers f, of what Summed gives, and of other moving values.
func (t *Tape) Moving(name string, shape []int, rule kernels.Op, f [2]float64, with ...*Value) *Value {
	v := t.paramOf(name, tensor.F32, shape, Place{}, 0, false)
	p := t.params[t.Full(name)]
	p.Fixed, p.Rule = true, Rule{Op: rule, Attr: kernels.Attr{F: f}}
	for _, w := range with {
		p.Rule.With = append(p.Rule.With, t.leaf(w).Name)
	}
	return v
}

var (
	opBest      = &Op{Name: "best", Kernel: kernels.Route, Args: 2}
	opSummedBwd = &Op{Name: "summed_bwd", Kernel: kernels.ModulateDW}
	opSummed    = &Op{Name: "summed", Kernel: kernels.Scale, Args: 1, VJP: summedVJP}
)

// summedVJP has the sums of rows in the place of the values' gradient.
func summedVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g, v, rows := make([]*Value, 4), n.In[1], n.In[2]
	if leg(0) {
		g[0] = t.to(dy[0], n.In[0].Place)
	}
	if leg(1) {
		ones, d := t.one(opFill, kernels.Attr{F: [2]float64{1}}, rows.DType, rows.Shape, rows.Place), rows.Shape[1]
		sums := t.one(opSummedBwd, kernels.Attr{}, tensor.F32, []int{tensor.Len(v.Shape) / d, d}, columnSums(rows), ones,
			rows, n.In[3])
		g[1] = t.one(opAlias, kernels.Attr{}, tensor.F32, v.Shape, sums.Place, sums)
	}
	return g
}

// Summed is x, and has a step add rows [t d] to row at[i] of the sums that values v [1 c d] move by, or [1 c] where d is
// 1: at [t] i32, outside c for rows that do not count. It counts where a gradient reaches x, once a microbatch.
func (t *Tape) Summed(x, v, rows, at *Value) *Value {
	rows = t.Detach(t.to(t.asType(rows, tensor.F32), Place{}))
	return t.one(opSummed, kernels.Attr{F: [2]float64{1}}, x.DType, x.Shape, x.Place, x, v, rows, t.to(at, Place{}))
}

// Best is the column of the greatest number of each row of x [t c] -> [t] i32, of equal ones the first. It has no gradient.
func (t *Tape) Best(x *Value) *Value {
	x = t.only(t.asType(x, tensor.F32), 0)
	n, shape := kernels.RouterAttr(routing.Router{Score: routing.SoftmaxChosen}), []int{x.Shape[0], 1}
	out := t.emit(opBest, n, []*Value{x, nil}, spec{shape, tensor.F32, x.Place}, spec{shape, tensor.I32, x.Place}).Out
	out[0].Need, out[1].Need = false, false
	return t.View(out[1], x.Shape[0])
}
