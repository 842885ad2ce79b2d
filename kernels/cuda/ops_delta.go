//go:build cuda

package cuda

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Linear attention by the gated delta rule, and the short convolution before it.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.CausalConv:   func(x *issue) { x.conv(-1) },
	kernels.CausalConvDX: func(x *issue) { x.conv(1) },
	kernels.CausalConvDW: func(x *issue) {
		dy, dw := x.in(0), x.out(0)
		x.launch(typed("causal_conv_dw", dy), rowwise(dw.Len(), dy.Shape[0]), x.in(1), dy, nil, x.in(2), nil, dw,
			dy.Shape[0], dw.Shape[0], dw.Shape[1], x.in(2).Len()-1, -1, x.accumulates(0))
	},
	kernels.DeltaGates: func(x *issue) {
		a := x.in(0)
		x.launch(typed("delta_gates", a), each(a.Len()), nil, nil, a, x.in(1), x.in(2), x.in(3), x.out(0),
			x.out(1), a.Len(), lastDim(a))
	},
	kernels.DeltaGatesBwd: func(x *issue) {
		a := x.in(2)
		x.launch(typed("delta_gates_bwd", a), each(a.Len()), x.in(0), x.in(1), a, x.in(3), x.in(4), x.in(5), x.out(0),
			x.out(1), a.Len(), lastDim(a))
	},
	kernels.DeltaRule:    (*issue).deltaRule,
	kernels.DeltaRuleBwd: (*issue).deltaRuleBwd,
})

// conv launches a convolution along rows before a row (-1) or behind it (1).
func (x *issue) conv(way int) {
	a, w := x.in(0), x.in(1)
	x.launch(typed("causal_conv", a), each(a.Len()), a, nil, w, x.in(2), x.out(0), nil, a.Shape[0], w.Shape[0],
		w.Shape[1], x.in(2).Len()-1, way, false)
}

// delta are the fields of the struct Delta.
type delta struct {
	q, k, v, dout, g, beta, cu, o, dv any
	start, old, dq, dk                uint64
	dg, dbeta                         *tensor.Tensor
	h, n, d, e, first                 int
}

func (x *issue) delta(name string, g grid, a delta) {
	x.launch(name, g, a.q, a.k, a.v, orNil(a.dout), a.g, a.beta, a.cu, a.o, orNil(a.dv), a.start, a.old, a.dq, a.dk,
		a.dg, a.dbeta, a.h, a.n, a.d, a.e, a.first, x.c.Attr.F[0])
}

const (
	deltaTokens = 64        // of a chunk whose states are there at once, as delta.cu has it
	deltaWork   = 256 << 20 // bytes of states of the sequences that are carried back at once
)

// blocks is a block for each value head of the sequences from the first on, which has a state of each.
func (a delta) blocks(sequences, vectors int) grid {
	return grid{x: sequences, y: a.n, threads: rowwise(1, max(a.d, a.e)).threads, shared: 4 * (a.d*a.e + vectors)}
}

// outside puts zeros into the rows of a tensor that no sequence has.
func (x *issue) outside(cu, y *tensor.Tensor) {
	if y.Len() > 0 && y.Shape[0] > 0 {
		x.launch("outside", each(y.Len()), cu, y, cu.Len()-1, y.Shape[0], y.Size()/y.Shape[0])
	}
}

func (x *issue) deltaRule() {
	q, v, cu := x.in(0), x.in(2), x.in(5)
	a := delta{q: q, k: x.in(1), v: v, g: x.in(3), beta: x.in(4), cu: cu, o: x.out(0), h: q.Shape[1],
		n: v.Shape[1], d: lastDim(q), e: lastDim(v)}
	x.outside(cu, x.out(0))
	if a.n > 0 {
		x.delta(typed("delta_rule", q), a.blocks(cu.Len()-1, 2*a.d), a)
	}
}

func (x *issue) deltaRuleBwd() {
	q, v, cu := x.in(1), x.in(3), x.in(6)
	a := delta{dout: x.in(0), q: q, k: x.in(2), v: v, g: x.in(4), beta: x.in(5), cu: cu, o: nil, dv: x.out(2),
		dg: x.out(3), dbeta: x.out(4), h: q.Shape[1], n: v.Shape[1], d: lastDim(q), e: lastDim(v)}
	t, c, size := q.Shape[0], cu.Len()-1, 4*a.d*a.e
	some := max(1, min(c, deltaWork/max(1, deltaTokens*size*a.n)))
	g := a.blocks(some, 4*a.d+3*a.e)
	a.start, a.old = x.work((t/deltaTokens+c+1)*a.n, size), x.work(some*a.n*deltaTokens, size)
	a.dq, a.dk = x.work(t*a.n*a.d, 4), x.work(t*a.n*a.d, 4)
	for _, y := range []*tensor.Tensor{x.out(2), x.out(3), x.out(4)} {
		x.outside(cu, y)
	}
	for a.first = 0; a.first < c && a.n > 0; a.first += some {
		g.x = min(some, c-a.first)
		x.delta(typed("delta_rule_bwd", q), g, a)
	}
	x.launch(typed("delta_heads", q), each(q.Len()), a.dq, a.dk, cu, x.out(0), x.out(1), q.Len(), c, a.h, a.n, a.d)
}
