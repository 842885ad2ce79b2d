package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// low is a form of a right operand's panels that has fewer bytes than float32: bytes of each number, and
// how as many as a vector has become float32. scales are those of the group.
type low struct {
	name  string
	size  int
	widen func(e *emitter, m, scales Mem, y vec)
}

// lows are the forms; see lowForm.
var lows = []low{
	{"Half", 2, func(_ *emitter, m, _ Mem, y vec) { VCVTPH2PS(m, y) }},
	{"Brain", 2, func(_ *emitter, m, _ Mem, y vec) {
		VPMOVZXWD(m, y)
		VPSLLD(Imm(16), y, y)
	}},
	{"Codes", 1, func(_ *emitter, m, scales Mem, y vec) {
		VPMOVSXBD(m, y)
		VCVTDQ2PS(y, y)
		VMULPS(scales, y, y)
	}},
}

// low writes a micro-kernel as few does, for panels of a form: steps of the sum in groups that have their scales.
func (e *emitter) low(l low, mr int) {
	e.begin(fmt.Sprintf("few%s%d", l.name, mr), "func(a []float32, aStep int, b []byte, scales []float32, group "+
		"int, c []float32, ldc, k, acc, far, farStep int)", fmt.Sprintf("multiplies one tile of %d rows, see isa.", mr))
	a, c, b, scales := base("a"), base("c"), base("b"), base("scales")
	aStep, far, farStep := bytesOf("aStep"), bytesOf("far"), count4("farStep")
	acc := e.accumulators(mr, 2, c)
	ADDQ(b, far)
	k, n := count4("k"), GP64()
	next, step, done := e.label(), e.label(), e.label()
	Label(next)
	MOVQ(load(Param("group")), n)
	CMPQ(k, n)
	CMOVQLT(k, n)
	TESTQ(n, n)
	JZ(LabelRef(done))
	SUBQ(n, k)
	Label(step)
	e.lowStep(l, acc, a, b, scales)
	PREFETCHT1(Mem{Base: far})
	ADDQ(farStep, far)
	ADDQ(aStep, a)
	ADDQ(U32(uint32(2*e.lanes()*l.size)), b)
	DECQ(n)
	JNZ(LabelRef(step))
	ADDQ(U32(uint32(2*e.bytes())), scales)
	JMP(LabelRef(next))
	Label(done)
	e.storeTile(acc, c)
	e.end()
}

// lowStep adds one outer product.
func (e *emitter) lowStep(l low, acc [][]vec, a, b, scales reg.GPVirtual) {
	bv := [2]vec{e.vec(), e.vec()}
	for j, y := range bv {
		l.widen(e, Mem{Base: b, Disp: j * e.lanes() * l.size}, Mem{Base: scales, Disp: j * e.bytes()}, y)
	}
	for i := range acc {
		x := e.vec()
		VBROADCASTSS(Mem{Base: a, Disp: 4 * i}, x)
		for j, y := range bv {
			VFMADD231PS(x, y, acc[i][j])
		}
	}
}
