package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// low is a form of a right operand's panels that has fewer bytes than float32: bits of each number, whether
// groups have offsets behind their scales, and how two vectors of numbers become float32.
type low struct {
	name    string
	bits    int
	offsets bool
	widen   func(s *lowTile, y [2]vec)
}

// lowTile is what one tile reads: numbers, and the scales of their group.
type lowTile struct {
	e         *emitter
	b, scales reg.GPVirtual
}

// lows are the forms; see lowForm.
var lows = []low{
	{"Half", 16, false, func(s *lowTile, y [2]vec) {
		for j := range y {
			VCVTPH2PS(s.at(j, 2), y[j])
		}
	}},
	{"Brain", 16, false, func(s *lowTile, y [2]vec) {
		for j := range y {
			VPMOVZXWD(s.at(j, 2), y[j])
			VPSLLD(Imm(16), y[j], y[j])
		}
	}},
	{"Codes", 8, false, func(s *lowTile, y [2]vec) {
		for j := range y {
			VPMOVSXBD(s.at(j, 1), y[j])
			VCVTDQ2PS(y[j], y[j])
			VMULPS(s.scale(j), y[j], y[j])
		}
	}},
	{"Moved", 8, true, func(s *lowTile, y [2]vec) {
		for j := range y {
			VPMOVSXBD(s.at(j, 1), y[j])
			s.moved(j, y[j])
		}
	}},
	{"Nibbles", 4, true, func(s *lowTile, y [2]vec) { // the second vector's lie in the upper halves of bytes
		VPMOVZXBD(s.at(0, 1), y[0])
		VPSRLD(Imm(4), y[0], y[1])
		VPSLLD(Imm(28), y[0], y[0])
		VPSRLD(Imm(28), y[0], y[0])
		for j := range y {
			s.moved(j, y[j])
		}
	}},
}

// at is vector j of numbers of so many bytes.
func (s *lowTile) at(j, size int) Mem { return Mem{Base: s.b, Disp: j * s.e.lanes() * size} }

func (s *lowTile) scale(j int) Mem { return Mem{Base: s.scales, Disp: j * s.e.bytes()} }

// moved makes codes numbers: times the scale, less the offset, rounded once.
func (s *lowTile) moved(j int, y vec) {
	VCVTDQ2PS(y, y)
	offset := s.e.vec()
	VMOVUPS(s.scale(2+j), offset)
	VFMSUB132PS(s.scale(j), offset, y)
}

// low writes a micro-kernel as few does, for panels of a form: steps of the sum in groups that have their scales.
func (e *emitter) low(l low, mr int) {
	e.begin(fmt.Sprintf("few%s%d", l.name, mr), "func(a []float32, aStep int, b []byte, scales []float32, group "+
		"int, c []float32, ldc, k, acc, far, farStep int)", fmt.Sprintf("multiplies one tile of %d rows, see isa.", mr))
	a, c := base("a"), base("c")
	s := &lowTile{e: e, b: base("b"), scales: base("scales")}
	aStep, far, farStep := bytesOf("aStep"), bytesOf("far"), count4("farStep")
	acc := e.accumulators(mr, 2, c)
	ADDQ(s.b, far)
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
	e.lowStep(l, acc, a, s)
	PREFETCHT1(Mem{Base: far})
	ADDQ(farStep, far)
	ADDQ(aStep, a)
	ADDQ(U32(uint32(2*e.lanes()*l.bits/8)), s.b)
	DECQ(n)
	JNZ(LabelRef(step))
	groups := 2
	if l.offsets {
		groups = 4
	}
	ADDQ(U32(uint32(groups*e.bytes())), s.scales)
	JMP(LabelRef(next))
	Label(done)
	e.storeTile(acc, c)
	e.end()
}

// lowStep adds one outer product.
func (e *emitter) lowStep(l low, acc [][]vec, a reg.GPVirtual, s *lowTile) {
	bv := [2]vec{e.vec(), e.vec()}
	l.widen(s, bv)
	for i := range acc {
		x := e.vec()
		VBROADCASTSS(Mem{Base: a, Disp: 4 * i}, x)
		for j, y := range bv {
			VFMADD231PS(x, y, acc[i][j])
		}
	}
}
