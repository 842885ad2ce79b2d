package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// webp writes the assembly of dataset/media/webp.
func webp() {
	readBlock()
	readModes()
	idctAdd()
	idctAdd4("idctAddRow", false,
		"adds the inverse transforms of four 4×4 blocks beside each other to their predictions.")
	idctAdd4("idctAddSquare", true,
		"adds the inverse transforms of two 4×4 blocks above two others to their predictions.")
	trueMotion()
	filterMacroblock()
	yuv32()
	lossless()
}

// boolReader has the fields of the reader of bits in registers.
type boolReader struct {
	b, i, size, value, n, span reg.GPVirtual
	split, at                  reg.GPVirtual // of the bit at hand
	sites                      int
	later                      []func() // code behind the function's end
}

func (r *boolReader) label(name string) string { return fmt.Sprintf("%s%d", name, r.sites) }

// load takes the fields from memory: their places are those of the type of this name in dataset/media/webp.
func (r *boolReader) load(from reg.GPVirtual) {
	for i, to := range []*reg.GPVirtual{&r.b, &r.size, nil, &r.i, &r.value, &r.n, &r.span} {
		if to != nil {
			*to = GP64()
			MOVQ(at(from, 8*i), *to)
		}
	}
	r.split, r.at = GP64(), GP64()
}

func (r *boolReader) store() {
	to := arg("r")
	for i, from := range []reg.GPVirtual{r.i, r.value, r.n, r.span} {
		MOVQ(from, at(to, 24+8*i))
	}
}

// bit reads a bit. If it is 1 it goes on at a label. prob sets a register.
func (r *boolReader) bit(prob func(reg.GPVirtual), one string) {
	r.sites++
	got := r.label("one")
	r.fill()
	r.divide(prob)
	MOVQ(r.value, r.at)
	SHRQ(Imm(56), r.at)
	CMPQ(r.at, r.split)
	JA(LabelRef(got))
	LEAQ(at(r.split, 1), r.span)
	r.normalize()
	r.later = append(r.later, func() {
		Label(got)
		INCQ(r.split)
		SUBQ(r.split, r.span)
		SHLQ(Imm(56), r.split)
		SUBQ(r.split, r.value)
		r.normalize()
		JMP(LabelRef(one))
	})
}

// divide computes the last number of the interval of 0; the upper byte of the next bits is above it for a
// 1. The sooner that is known, the less a jump that was guessed wrong costs.
func (r *boolReader) divide(prob func(reg.GPVirtual)) {
	LEAQ(at(r.span, -1), r.split)
	prob(r.at)
	IMULQ(r.at, r.split)
	SHRQ(Imm(8), r.split)
}

func (r *boolReader) normalize() {
	LZCNTL(r.span.As32(), r.at.As32())
	SUBL(Imm(24), r.at.As32())
	SHLXQ(r.at, r.span, r.span)
	SHLXQ(r.at, r.value, r.value)
	SUBQ(r.at, r.n)
}

// fill makes sure that 8 bits are counted.
func (r *boolReader) fill() {
	empty, filled, slow, end := r.label("empty"), r.label("filled"), r.label("slow"), r.label("end")
	CMPQ(r.n, Imm(8))
	JB(LabelRef(empty))
	Label(filled)
	r.later = append(r.later, func() {
		Label(empty)
		LEAQ(at(r.i, 8), r.at)
		CMPQ(r.at, r.size)
		JGT(LabelRef(slow))
		MOVQ(Mem{Base: r.b, Index: r.i, Scale: 1}, r.at)
		BSWAPQ(r.at)
		SHRXQ(r.n, r.at, r.at)
		ORQ(r.at, r.value)
		ADDQ(Imm(7), r.i)
		ORQ(Imm(56), r.n)
		JMP(LabelRef(filled))
		Label(slow)
		CMPQ(r.i, r.size)
		JGE(LabelRef(end))
		MOVBQZX(Mem{Base: r.b, Index: r.i, Scale: 1}, r.at)
		MOVQ(U64(56), r.split)
		SUBQ(r.n, r.split)
		SHLXQ(r.split, r.at, r.at)
		ORQ(r.at, r.value)
		INCQ(r.i)
		ADDQ(Imm(8), r.n)
		JMP(LabelRef(filled))
		Label(end)
		MOVB(U8(1), at(Load(Param("r"), r.at).(reg.GPVirtual), 56))
		ADDQ(Imm(8), r.n)
		JMP(LabelRef(filled))
	})
}

// bytes is read-only data.
func bytes(name string, values ...byte) Mem {
	m := GLOBL(name, 8|16)
	for i, v := range values {
		DATA(i, U8(v))
	}
	return m
}

// readBlock writes the reading of a block's coefficients.
func readBlock() {
	begin("readBlock", "func(r *byte, at *byte, coef *int16, step *[2]int32, first int, context int) byte",
		"reads the coefficients of a block from the first on, and returns 1 if there are any.")
	var r boolReader
	r.load(arg("r"))
	base, k, p, v := arg("at"), arg("first"), arg("context"), GP64()
	IMUL3Q(U8(33), k, v)
	ADDQ(v, base)
	IMUL3Q(U8(11), p, p)
	ADDQ(base, p)
	of := func(i int) func(reg.GPVirtual) {
		return func(to reg.GPVirtual) { MOVBQZX(at(p, i), to) }
	}
	r.bit(of(0), "value")
	r.store()
	Store(zero8(), ReturnIndex(0))
	RET()

	Label("value")
	r.bit(of(1), "more")
	INCQ(k)
	ADDQ(Imm(33), base)
	MOVQ(base, p)
	CMPQ(k, Imm(16))
	JB(LabelRef("value"))
	JMP(LabelRef("filledBlock"))

	Label("more")
	ADDQ(Imm(33), base)
	r.bit(of(2), "larger")
	MOVQ(U64(1), v)
	LEAQ(at(base, 11), p)
	Label("sign")
	r.sign(v)
	LEAQ(bytes("zigzag", 0, 1, 4, 8, 5, 2, 3, 6, 9, 12, 13, 10, 7, 11, 14, 15), r.split)
	MOVBQZX(Mem{Base: r.split, Index: k, Scale: 1}, r.at)
	XORL(r.split.As32(), r.split.As32())
	TESTQ(k, k)
	SETNE(r.split.As8())
	IMULL(Mem{Base: r.step(), Index: r.split, Scale: 4}, v.As32())
	Load(Param("coef"), r.split)
	MOVW(v.As16(), Mem{Base: r.split, Index: r.at, Scale: 2})
	INCQ(k)
	CMPQ(k, Imm(16))
	JAE(LabelRef("filledBlock"))
	r.bit(of(0), "value")
	Label("filledBlock")
	r.store()
	one := GP8()
	MOVB(U8(1), one)
	Store(one, ReturnIndex(0))
	RET()

	r.larger(of, base, p, v)
	for i := 0; i < len(r.later); i++ {
		r.later[i]()
	}
}

// readModes writes the reading of the modes of 16 blocks.
func readModes() {
	begin("readModes", "func(r, probs, above, left, modes *byte)",
		"reads the modes of 16 blocks after those above and to the left, four each, which it replaces.")
	var r boolReader
	r.load(arg("r"))
	left, modes, x, y := arg("left"), arg("modes"), GP64(), GP64()
	mode, p := GP64(), GP64()
	XORL(y.As32(), y.As32())
	Label("modesRow")
	MOVBQZX(at(left, 0), mode)
	XORL(x.As32(), x.As32())
	Label("nextMode")
	Load(Param("above"), p)
	MOVBQZX(Mem{Base: p, Index: x, Scale: 1}, p)
	IMUL3Q(U8(90), p, p)
	LEAQ(Mem{Base: mode, Index: mode, Scale: 8}, mode)
	ADDQ(mode, p)
	ADDQ(NewParamAddr("probs", 8), p)
	// the tree of modes (section 11.2): what follows on a 0 and on a 1, leaves from 16 on
	tree := [9][2]int{{16, 1}, {17, 2}, {18, 3}, {4, 6}, {19, 5}, {20, 21}, {22, 7}, {23, 8}, {24, 25}}
	for k, next := range tree {
		Label(fmt.Sprintf("mode%d", k))
		r.bit(func(to reg.GPVirtual) { MOVBQZX(at(p, k), to) }, fmt.Sprintf("mode%d", next[1]))
		JMP(LabelRef(fmt.Sprintf("mode%d", next[0])))
	}
	for k := range 10 {
		Label(fmt.Sprintf("mode%d", 16+k))
		MOVQ(U64(uint64(k)), mode)
		JMP(LabelRef("modeRead"))
	}
	Label("modeRead")
	MOVB(mode.As8(), Mem{Base: modes, Index: x, Scale: 1})
	Load(Param("above"), p)
	MOVB(mode.As8(), Mem{Base: p, Index: x, Scale: 1})
	INCQ(x)
	CMPQ(x, Imm(4))
	JB(LabelRef("nextMode"))
	MOVB(mode.As8(), at(left, 0))
	INCQ(left)
	ADDQ(Imm(4), modes)
	INCQ(y)
	CMPQ(y, Imm(4))
	JB(LabelRef("modesRow"))
	r.store()
	RET()
	for i := 0; i < len(r.later); i++ {
		r.later[i]()
	}
}

func zero8() reg.Register {
	z := GP8()
	MOVB(U8(0), z)
	return z
}

// step is a register with the address of the steps.
func (r *boolReader) step() reg.GPVirtual { s := GP64(); Load(Param("step"), s); return s }

// sign reads a bit of no bias, and negates v if it is 1, without a jump.
func (r *boolReader) sign(v reg.GPVirtual) {
	r.sites++
	r.fill()
	LEAQ(at(r.span, -1), r.split)
	SHRQ(Imm(1), r.split)
	INCQ(r.split)
	MOVQ(r.split, r.at)
	SHLQ(Imm(56), r.at)
	less, rest := GP64(), GP64()
	SUBQ(r.split, r.span)
	MOVQ(r.value, rest)
	SUBQ(r.at, rest)
	MOVQ(v, less)
	NEGQ(less)
	CMPQ(r.value, r.at)
	CMOVQCC(less, v)
	CMOVQCC(rest, r.value)
	CMOVQCS(r.split, r.span)
	r.normalize()
}

// larger writes the reading of a coefficient's size from 2 on.
func (r *boolReader) larger(of func(int) func(reg.GPVirtual), base, p, v reg.GPVirtual) {
	fixed := func(n uint64) func(reg.GPVirtual) {
		return func(to reg.GPVirtual) { MOVQ(U64(n), to) }
	}
	done := func(n uint64) {
		MOVQ(U64(n), v)
		JMP(LabelRef("read"))
	}
	Label("larger")
	r.bit(of(3), "from5")
	r.bit(of(4), "from3")
	done(2)
	Label("from3")
	r.bit(of(5), "is4")
	done(3)
	Label("is4")
	done(4)
	Label("from5")
	r.bit(of(6), "from11")
	r.bit(of(7), "from7")
	r.bit(fixed(159), "is6")
	done(5)
	Label("is6")
	done(6)
	Label("from7")
	r.bit(fixed(165), "from9")
	r.bit(fixed(145), "is8")
	done(7)
	Label("is8")
	done(8)
	Label("from9")
	r.bit(fixed(145), "is10")
	done(9)
	Label("is10")
	done(10)

	Label("from11")
	large := GP64()
	LEAQ(bytes("large", 173, 148, 140, 0, 176, 155, 140, 135, 0, 180, 157, 141, 134, 130, 0,
		254, 254, 243, 230, 196, 177, 153, 140, 133, 130, 129, 0), large)
	r.bit(of(8), "from35")
	r.bit(of(9), "from19")
	JMP(LabelRef("more3"))
	Label("from19")
	ADDQ(Imm(4), large)
	JMP(LabelRef("more3"))
	Label("from35")
	r.bit(of(10), "from67")
	ADDQ(Imm(9), large)
	Label("more3") // 3, 4 or 5 bits behind a 1, and 3
	MOVQ(U64(1), v)
	r.rest(v, large, "few")
	ADDQ(Imm(3), v)
	JMP(LabelRef("read"))
	Label("from67")
	ADDQ(Imm(15), large)
	XORL(v.As32(), v.As32())
	r.rest(v, large, "many")
	ADDQ(Imm(67), v)
	Label("read")
	LEAQ(at(base, 22), p)
	JMP(LabelRef("sign"))
}

// rest reads bits behind those of v until their probability is 0.
func (r *boolReader) rest(v, large reg.GPVirtual, name string) {
	Label(name + "Next")
	ADDQ(v, v)
	r.bit(func(to reg.GPVirtual) { MOVBQZX(at(large, 0), to) }, name+"One")
	JMP(LabelRef(name + "Read"))
	Label(name + "One")
	INCQ(v)
	Label(name + "Read")
	INCQ(large)
	CMPB(at(large, 0), Imm(0))
	JNE(LabelRef(name + "Next"))
}
