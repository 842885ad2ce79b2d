package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// nibbles emits numbers of codes of four bits, sixteen at a time: a byte moved up by four beside itself has
// the low code in its low byte and the high one above, and permutations of a table are the look-up.
func (e *emitter) nibbles() {
	e.beginMove("nibbles", "func(y []float32, codes []byte, table *[16]float32)",
		"is y = table[code], the first of two codes of a byte in its low half; y is a multiple of 16 long.")
	n, y, codes := count("y"), base("y"), base("codes")
	table := Mem{Base: load(Param("table"))}
	low, high := e.vec(), e.vec()
	VMOVUPS(table, low)
	if !e.wide {
		VMOVUPS(table.Offset(32), high)
	}
	again, rest := e.label(), e.label()
	Label(again)
	CMPQ(n, U32(16))
	JL(LabelRef(rest))
	b, t := XMM(), XMM()
	VPMOVZXBW(Mem{Base: codes}, b)
	VPSLLW(Imm(4), b, t)
	VPOR(t, b, b)
	VPAND(integer(0x0f0f0f0f), b, b)
	if e.wide {
		i := e.vec()
		VPMOVZXBD(b, i)
		VPERMPS(low, i, i)
		VMOVUPS(i, Mem{Base: y})
	} else {
		for k := range 2 {
			i, l, h := e.vec(), e.vec(), e.vec()
			VPMOVZXBD(b, i)
			VPERMPS(low, i, l)
			VPERMPS(high, i, h)
			VPSLLD(Imm(28), i, i)
			VBLENDVPS(i, h, l, l)
			VMOVUPS(l, Mem{Base: y, Disp: 32 * k})
			VPSRLDQ(Imm(8), b, b)
		}
	}
	ADDQ(Imm(64), y)
	ADDQ(Imm(8), codes)
	SUBQ(U32(16), n)
	JMP(LabelRef(again))
	Label(rest)
	e.end()
}
