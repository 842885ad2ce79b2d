package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// low is a form of a right operand's panels that has fewer bytes than float32: bits of each number,
// the scales of a group, and how two vectors of numbers become float32.
type low struct {
	name   string
	bits   int
	scales int // vectors of them that a group has: two, and two of offsets
	widen  func(s *lowTile, y [2]vec)
}

// lowTile is what one tile reads: numbers, and the scales of their group, which lie in registers where there are
// some to spare.
type lowTile struct {
	e         *emitter
	b, scales reg.GPVirtual
	held      []vec
	sixteen   vec // the numbers 0 to 15 of codes of four bits, where vectors have as many
}

// lows are the forms; see lowForm.
var lows = []low{
	{"Half", 16, 0, func(s *lowTile, y [2]vec) {
		for j := range y {
			VCVTPH2PS(s.at(j, 2), y[j])
		}
	}},
	{"Brain", 16, 0, func(s *lowTile, y [2]vec) {
		for j := range y {
			VPMOVZXWD(s.at(j, 2), y[j])
			VPSLLD(Imm(16), y[j], y[j])
		}
	}},
	{"Codes", 8, 2, func(s *lowTile, y [2]vec) {
		for j := range y {
			VPMOVSXBD(s.at(j, 1), y[j])
			VCVTDQ2PS(y[j], y[j])
			VMULPS(s.scale(j), y[j], y[j])
		}
	}},
	{"Moved", 8, 4, func(s *lowTile, y [2]vec) {
		for j := range y {
			VPMOVSXBD(s.at(j, 1), y[j])
			s.moved(j, y[j])
		}
	}},
	{"Nibbles", 4, 4, func(s *lowTile, y [2]vec) { // the second vector's lie in the upper halves of bytes
		VPMOVZXBD(s.at(0, 1), y[0])
		VPSRLD(Imm(4), y[0], y[1])
		if s.sixteen != nil { // looks at four bits of an index
			for j := range y {
				VPERMPS(s.sixteen, y[j], y[j])
				s.offset(j, y[j])
			}
			return
		}
		s.e.and(integer(0x0f), y[0], y[0])
		for j := range y {
			s.moved(j, y[j])
		}
	}},
}

// at is vector j of numbers of so many bytes.
func (s *lowTile) at(j, size int) Mem { return Mem{Base: s.b, Disp: j * s.e.lanes() * size} }

// scale is the scale of column vector j, or its offset with two more.
func (s *lowTile) scale(j int) Op {
	if s.held != nil {
		return s.held[j]
	}
	return Mem{Base: s.scales, Disp: j * s.e.bytes()}
}

// hold reads the scales of a group once where a tile of so many rows leaves registers for them.
func (s *lowTile) hold(n, mr int) {
	most := 16
	if s.e.wide {
		most = 32
	}
	if s.held = nil; n == 0 || 2*mr+n+5 > most {
		return
	}
	for j := range n {
		v := s.e.vec()
		VMOVUPS(Mem{Base: s.scales, Disp: j * s.e.bytes()}, v)
		s.held = append(s.held, v)
	}
}

// moved makes codes numbers: times the scale, less the offset, rounded once.
func (s *lowTile) moved(j int, y vec) {
	VCVTDQ2PS(y, y)
	s.offset(j, y)
}

// offset gives numbers their group's scale and offset.
func (s *lowTile) offset(j int, y vec) {
	if s.held != nil {
		VFMSUB132PS(s.held[j], s.held[2+j], y)
		return
	}
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
	if e.wide && l.bits == 4 {
		m := GLOBL("sixteen"+l.name+fmt.Sprint(mr), RODATA|NOPTR)
		for i := range 16 {
			DATA(4*i, U32(math.Float32bits(float32(i))))
		}
		s.sixteen = e.vec()
		VMOVUPS(m, s.sixteen)
	}
	Label(next)
	MOVQ(load(Param("group")), n)
	CMPQ(k, n)
	CMOVQLT(k, n)
	TESTQ(n, n)
	JZ(LabelRef(done))
	SUBQ(n, k)
	s.hold(l.scales, mr)
	Label(step)
	e.lowStep(l, acc, a, s)
	PREFETCHT1(Mem{Base: far})
	ADDQ(farStep, far)
	ADDQ(aStep, a)
	ADDQ(U32(uint32(2*e.lanes()*l.bits/8)), s.b)
	DECQ(n)
	JNZ(LabelRef(step))
	ADDQ(U32(uint32(max(2, l.scales)*e.bytes())), s.scales)
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
