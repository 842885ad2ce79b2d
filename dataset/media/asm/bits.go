package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// run writes the loop over codes that are in the table.
func run() {
	begin("runCodes",
		"func(c *int16, whole *uint32, order *byte, b *byte, size int, at *int, acc *uint64, count *uint, k int) int",
		"reads coefficients from position k on while their codes are in the table, and returns the position behind "+
			"them; it also returns where under 32 bits are counted and the next 8 bytes are few or have one of ff.")
	c, whole, order, b, size, k := arg("c"), arg("whole"), arg("order"), arg("b"), arg("size"), arg("k")
	i, acc, n := GP64(), GP64(), GP64()
	MOVQ(at(arg("at"), 0), i)
	MOVQ(at(arg("acc"), 0), acc)
	MOVQ(at(arg("count"), 0), n)
	ones, tops := GP64(), GP64()
	MOVQ(U64(0x0101010101010101), ones)
	MOVQ(U64(0x8080808080808080), tops)
	SUBQ(Imm(8), size)

	Label("code")
	CMPQ(n, Imm(32))
	JB(LabelRef("fill"))
	Label("filled")
	e, t, z := GP64(), GP64(), GP64()
	MOVQ(acc, t)
	SHRQ(Imm(64-11), t)
	MOVL(Mem{Base: whole, Index: t, Scale: 4}, e.As32())
	TESTL(e.As32(), e.As32())
	JZ(LabelRef("out"))
	MOVBQZX(e.As8(), t)
	SHLXQ(t, acc, acc)
	SUBQ(t, n)
	MOVL(e.As32(), t.As32())
	SHRL(Imm(8), t.As32())
	MOVBQZX(t.As8(), t)
	ADDQ(t, k)
	SARL(Imm(16), e.As32())
	MOVBQZX(Mem{Base: order, Index: k, Scale: 1, Disp: -1}, z)
	MOVW(e.As16(), Mem{Base: c, Index: z, Scale: 2})
	CMPQ(k, Imm(64))
	JB(LabelRef("code"))
	JMP(LabelRef("out"))

	Label("fill")
	CMPQ(i, size)
	JGT(LabelRef("out"))
	x, y := GP64(), GP64()
	MOVQ(Mem{Base: b, Index: i, Scale: 1}, x)
	BSWAPQ(x)
	MOVQ(x, y)
	NOTQ(y)
	SUBQ(ones, y)
	ANDQ(x, y)
	TESTQ(tops, y)
	JNZ(LabelRef("out"))
	SHRXQ(n, x, x)
	ORQ(x, acc)
	MOVQ(U64(63), y)
	SUBQ(n, y)
	SHRQ(Imm(3), y)
	ADDQ(y, i)
	ORQ(Imm(56), n)
	JMP(LabelRef("filled"))

	Label("out")
	MOVQ(i, at(arg("at"), 0))
	MOVQ(acc, at(arg("acc"), 0))
	MOVQ(n, at(arg("count"), 0))
	Store(k, ReturnIndex(0))
	RET()
}
