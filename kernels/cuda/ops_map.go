//go:build cuda

package cuda

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Elementwise and structural operations, and the optimizers.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.SwiGLU:    func(x *issue) { x.mappedEights("swiglu", 0) },
	kernels.SwiGLUBwd: func(x *issue) { x.mappedEights("swiglu_bwd", 0) },
	kernels.Act:       func(x *issue) { x.act("act") },
	kernels.ActBwd:    func(x *issue) { x.act("act_bwd") },
	kernels.Mul:       func(x *issue) { x.mappedEights("mul", 0) },
	kernels.Scale:     func(x *issue) { x.mappedEights("scale", 0) },
	kernels.MulCols:   func(x *issue) { x.mapped("mul_cols", 0) },
	kernels.ScaleRows: func(x *issue) { x.mapped("scale_rows", 0) },
	kernels.GateRows:  func(x *issue) { x.mapped("gate_rows", 0) },
	kernels.Dropout:   func(x *issue) { x.mapped("dropout", x.c.Attr.I[0]) },
	kernels.Jitter:    func(x *issue) { x.mapped("jitter", x.c.Attr.I[0]) },
	kernels.Sum:       (*issue).sum,
	kernels.Cast:      (*issue).cast,
	kernels.Fill: func(x *issue) {
		y := x.out(0)
		if !y.DType.Float() {
			x.absent = true
			return
		}
		x.launch("fill", each(y.Len()), nil, y, y.Len(), 0, int(y.DType), x.c.Attr.F[0])
	},
	kernels.AddTo: func(x *issue) {
		if !x.accumulates(0) {
			x.cast()
			return
		}
		a, y := x.in(0), x.out(0)
		x.launch("add_to", each(y.Len()), a, y, y.Len(), int(a.DType), int(y.DType), 0.0)
	},
	kernels.Slice:  (*issue).slice,
	kernels.Concat: (*issue).concat,
	kernels.AdamW: func(x *issue) {
		if !x.later() {
			x.update("adamw", x.out(2), x.out(3))
		}
	},
	kernels.Lion:    func(x *issue) { x.update("lion", nil, x.out(2)) },
	kernels.Average: func(x *issue) { x.update("average", nil, nil) },
	kernels.SGD:     func(x *issue) { x.update("sgd", nil, x.out(2)) },
	kernels.SignStep: func(x *issue) {
		g, p := x.in(0), x.out(0)
		x.launch("sign_step", each(g.Len()), g, nil, x.in(1), p, nil, nil, nil, g.Len(), 0, false, x.c.Attr.F[0])
	},
	kernels.SumSquares: func(x *issue) {
		if x.laterSum() {
			return
		}
		g, n := x.in(0), parts(x.in(0).Len(), 4096)
		part := x.work(n, 8)
		x.launch("squares", grid{x: n, threads: 256}, g, part, nil, g.Len(), false)
		x.launch("total", single(256), nil, part, x.out(0), n, x.accumulates(0))
	},
})

// act launches an activation.
func (x *issue) act(name string) { x.mappedEights(name, x.c.Attr.I[0]) }

// mapped launches a kernel whose elements depend on the same ones of its operands.
func (x *issue) mapped(name string, kind int) { x.mapOver(name, kind, each(x.out(0).Len())) }

// mappedEights is mapped for kernels whose threads have eight elements at a time.
func (x *issue) mappedEights(name string, kind int) { x.mapOver(name, kind, eachEight(x.out(0).Len())) }

func (x *issue) mapOver(name string, kind int, g grid) {
	y := x.out(0)
	d := 1
	if n := len(y.Shape); n > 0 {
		d = lastDim(y)
	}
	if x.c.Op == kernels.Dropout { // a row is all that belongs to one key
		d = tensor.Len(y.Shape[1:])
	}
	x.launch(typed(name, y), g, x.in(0), x.in(1), x.in(2), y, x.out(1), y.Len(), max(d, 1), kind, x.c.Attr.F[0])
}

// cast converts, or copies what has the dtype already.
func (x *issue) cast() {
	a, y := x.in(0), x.out(0)
	switch {
	case a.DType == y.DType:
		x.copy(y, a)
	case y.DType == tensor.F32 && a.DType != tensor.F64:
		x.launch(typed("widen_all", a), eachEight(y.Len()), a, y, y.Len(), 0, 0, 0.0)
	case a.DType == tensor.F32 && y.DType != tensor.F64:
		x.launch(typed("narrow_all", y), eachEight(y.Len()), a, y, y.Len(), 0, 0, 0.0)
	default:
		x.launch("cast", each(y.Len()), a, y, y.Len(), int(a.DType), int(y.DType), 0.0)
	}
}

const sumOperands = 48 // of one launch, as elementwise.cu has it

func (x *issue) sum() {
	y, in := x.out(0), x.c.In
	switch {
	case len(in) == 1:
		x.copy(y, in[0])
		return
	case !y.DType.Float() || y.DType == tensor.F64 && len(in) > sumOperands:
		x.absent = true
		return
	}
	carry := uint64(0)
	for len(in) > 0 {
		now := in[:min(len(in), sumOperands)]
		in = in[len(now):]
		end := uint64(0)
		if len(in) > 0 {
			end = x.work(y.Len(), 4)
		}
		args := make([]any, sumOperands, sumOperands+5)
		for i, t := range now {
			args[i] = t
		}
		x.launch(typed("sum", y), eachEight(y.Len()), append(args, carry, end, y, y.Len(), len(now))...)
		carry = end
	}
}

// window copies len bytes of each of some rows between arrays of different row length, in the widest words that fit.
func (x *issue) window(from, to uint64, rows, n, fromRow, toRow int) {
	w := 8
	for (int(from)|int(to)|n|fromRow|toRow)%w != 0 {
		w /= 2
	}
	x.launch("window_"+string(rune('0'+w)), each(rows*n/w), from, to, rows, n, fromRow, toRow)
}

// spans gives the number of rows before an axis and the bytes of one index of it.
func spans(t *tensor.Tensor, axis int) (outer, inner int) {
	return tensor.Len(t.Shape[:axis]), tensor.Len(t.Shape[axis+1:]) * t.DType.Size()
}

func (x *issue) slice() {
	a, y, axis := x.in(0), x.out(0), x.c.Attr.I[0]
	outer, inner := spans(a, axis)
	n := y.Shape[axis] * inner
	x.window(x.q.Addr(a)+uint64(x.c.Attr.I[1]*inner), x.q.Addr(y), outer, n, a.Shape[axis]*inner, n)
}

func (x *issue) concat() {
	y, axis := x.out(0), x.c.Attr.I[0]
	outer, inner := spans(y, axis)
	at := x.q.Addr(y)
	for _, a := range x.c.In {
		n := a.Shape[axis] * inner
		x.window(x.q.Addr(a), at, outer, n, n, y.Shape[axis]*inner)
		at += uint64(n)
	}
}

// update launches an optimizer; v is its second moment, q the parameters in the model's dtype.
func (x *issue) update(name string, v, q *tensor.Tensor) {
	g, code := x.in(0), 0
	if q != nil {
		code = int(q.DType)
	}
	x.launch(name, each(g.Len()), g, x.in(1), x.in(2), x.out(0), x.out(1), v, q, g.Len(), code, x.c.Attr.I[0] == 1, 0.0)
}
