package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rowTimes writes the product of one row with as many rows as a vector has lanes: square blocks of them are
// turned in registers, so that the sum of each runs in one lane in the order that tile has.
func (e *emitter) rowTimes() {
	e.begin("rowTimes", "func(c, x, w []float32, ld, blocks, far, farRow, farBlock int)",
		"adds a row times rows of w to c, see isa.")
	e.turnedRows(2, func(x Mem, w, acc vec) {
		b := e.vec()
		VBROADCASTSS(x, b)
		VFMADD231PS(b, w, acc)
	})
}

// rowTimesHalf is rowTimes for pairs of bfloat16, whose products are added as dotBlocks adds them.
func (e *emitter) rowTimesHalf() {
	e.beginMove("rowTimesHalf", "func(c []float32, x, w []uint16, ld, blocks, far, farRow, farBlock int)",
		"adds a row times rows of w to c, see isa.")
	e.turnedRows(1, func(x Mem, w, acc vec) {
		b := e.vec()
		VPBROADCASTD(x, b)
		dotPairs(b, w, acc)
	})
}

// turnedRows runs step over the columns of blocks of w, each with the numbers of x for it, which take four
// bytes; elements of w have 1<<shift bytes.
func (e *emitter) turnedRows(shift uint64, step func(x Mem, w, acc vec)) {
	bytes := func(name string) reg.GPVirtual {
		r := load(Param(name))
		SHLQ(Imm(shift), r)
		return r
	}
	c, x, w, n := base("c"), base("x"), base("w"), count4("blocks")
	ld, far, farRow, farBlock := bytes("ld"), bytes("far"), bytes("farRow"), bytes("farBlock")
	ADDQ(w, far)
	acc := e.load(Mem{Base: c}, false)
	next, done := e.label(), e.label()
	Label(next)
	TESTQ(n, n)
	JZ(LabelRef(done))
	r, p, q := make([]vec, e.lanes()), GP64(), GP64()
	MOVQ(w, p)
	MOVQ(far, q)
	for i := range r {
		r[i] = e.vec()
		VMOVUPS(Mem{Base: p}, r[i])
		ADDQ(ld, p)
		PREFETCHT1(Mem{Base: q})
		ADDQ(farRow, q)
	}
	if e.wide {
		r = transpose16(r)
	} else {
		r = transpose8(r)
	}
	for i, v := range r {
		step(Mem{Base: x, Disp: 4 * i}, v, acc)
	}
	ADDQ(U32(uint32(e.bytes())), w)
	ADDQ(U32(uint32(e.bytes())), x)
	ADDQ(farBlock, far)
	DECQ(n)
	JMP(LabelRef(next))
	Label(done)
	e.store(acc, Mem{Base: c}, false)
	e.end()
}

// dotPairs is acc += Σ of the two products of each pair. avo does not know VDPBF16PS; another instruction with
// the same operands holds its place, as for roundPairs.
func dotPairs(x, w, acc vec) { VPDPWSSD(x, w, acc) }
