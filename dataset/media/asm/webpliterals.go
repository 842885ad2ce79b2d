package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// readLiterals writes the loop over pixels whose alpha is one and the same.
func readLiterals() {
	begin("readLiterals", "func(r *byte, pix *uint32, most int, green, red, blue *uint32, alpha uint32) (n, symbol "+
		"int)", "reads at most so many pixels until another symbol than a pixel's green comes, and returns how "+
		"many and that, or -1 for none, or -2 where few bytes are left. r begins with the fields of bitReader.")
	b, i, size, value, n := GP64(), GP64(), GP64(), GP64(), GP64()
	r := arg("r")
	for k, to := range []reg.GPVirtual{b, size, nil, i, value, n} {
		if to != nil {
			MOVQ(at(r, 8*k), to)
		}
	}
	SUBQ(Imm(8), size)
	pix, end := arg("pix"), AllocLocal(8)
	e, t, p, symbol := GP64(), GP64(), GP64(), GP64()
	Load(Param("most"), t)
	LEAQ(Mem{Base: pix, Index: t, Scale: 4}, t)
	MOVQ(t, end)
	green, red, blue := arg("green"), arg("red"), arg("blue")
	lookUp := func(table reg.GPVirtual, second string) {
		MOVBQZX(value.As8(), t)
		MOVL(Mem{Base: table, Index: t, Scale: 4}, e.As32())
		CMPB(e.As8(), Imm(8))
		JA(LabelRef(second))
		Label(second + "Done")
		SHRXQ(e, value, value)
		MOVBQZX(e.As8(), t)
		SUBQ(t, n)
	}
	further := func(table reg.GPVirtual, second string) {
		Label(second)
		MOVBQZX(e.As8(), t)
		SHRL(Imm(8), e.As32())
		NEGQ(t)
		ADDQ(Imm(72), t) // 64 less the further bits
		size := GP64()
		MOVQ(value, size)
		SHRQ(Imm(8), size)
		SHLXQ(t, size, size)
		SHRXQ(t, size, size)
		ADDQ(size, e)
		MOVL(Mem{Base: table, Index: e, Scale: 4}, e.As32())
		JMP(LabelRef(second + "Done"))
	}
	MOVQ(I32(-1), symbol)
	Label("pixel")
	CMPQ(pix, end)
	JAE(LabelRef("out"))
	CMPQ(n, Imm(45))
	JL(LabelRef("few"))
	Label("enough")
	lookUp(green, "green2")
	CMPL(e.As32(), U32(256<<8))
	JAE(LabelRef("other"))
	MOVL(e.As32(), p.As32())
	XORB(p.As8(), p.As8())
	lookUp(red, "red2")
	SHRL(Imm(8), e.As32())
	SHLL(Imm(16), e.As32())
	ORL(e.As32(), p.As32())
	lookUp(blue, "blue2")
	SHRL(Imm(8), e.As32())
	ORL(e.As32(), p.As32())
	ORL(NewParamAddr("alpha", 48), p.As32())
	MOVL(p.As32(), Mem{Base: pix})
	ADDQ(Imm(4), pix)
	JMP(LabelRef("pixel"))

	Label("few")
	CMPQ(i, size)
	JG(LabelRef("ends"))
	MOVQ(Mem{Base: b, Index: i, Scale: 1}, t)
	SHLXQ(n, t, t)
	ORQ(t, value)
	MOVQ(U64(63), t)
	SUBQ(n, t)
	SHRQ(Imm(3), t)
	ADDQ(t, i)
	ORQ(Imm(56), n)
	JMP(LabelRef("enough"))
	Label("ends")
	MOVQ(I32(-2), symbol)
	JMP(LabelRef("out"))
	Label("other")
	SHRL(Imm(8), e.As32())
	MOVQ(e, symbol)
	Label("out")
	r = arg("r")
	for k, from := range []reg.GPVirtual{i, value, n} {
		MOVQ(from, at(r, 24+8*k))
	}
	SUBQ(arg("pix"), pix)
	SHRQ(Imm(2), pix)
	Store(pix, ReturnIndex(0))
	Store(symbol, ReturnIndex(1))
	RET()
	further(green, "green2")
	further(red, "red2")
	further(blue, "blue2")
}
