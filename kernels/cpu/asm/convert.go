package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// conversions writes the conversions of 16-bit types. With AVX2, which cannot mask 16-bit lanes, they handle
// whole vectors only: the length must be a multiple of 8.
func (e *emitter) conversions() {
	e.widen("fromBF16", func(m Mem, v vec, masked bool) {
		if masked {
			VPMOVZXWD_Z(m, e.mask, v)
		} else {
			VPMOVZXWD(m, v)
		}
		VPSLLD(Imm(16), v, v)
	})
	e.widen("fromF16", func(m Mem, v vec, masked bool) {
		if masked {
			VCVTPH2PS_Z(m, e.mask, v)
		} else {
			VCVTPH2PS(m, v)
		}
	})
	if e.wide {
		e.narrow("toBF16", e.roundBF16)
	} else {
		e.narrowPairs("toBF16")
	}
	e.narrow("toF16", func(v vec, m Mem, masked bool) {
		if masked {
			VCVTPS2PH(Imm(0), v, e.mask, m)
		} else {
			VCVTPS2PH(Imm(0), v, m)
		}
	})
}

// mixedAtOnce is the vectors that mixed converts in one turn of its loop, while there are so many.
const mixedAtOnce = 4

// mixed is each over a slice of float32 and one of 16-bit elements.
func (e *emitter) mixed(wide, narrow string, n reg.GPVirtual, body func(w, h Mem, masked bool)) {
	f, h := base(wide), base(narrow)
	for _, vectors := range []int{mixedAtOnce, 1} {
		again, rest := e.label(), e.label()
		Label(again)
		CMPQ(n, U32(uint32(vectors*e.lanes())))
		JL(LabelRef(rest))
		for v := range vectors {
			body(Mem{Base: f, Disp: v * e.bytes()}, Mem{Base: h, Disp: v * e.bytes() / 2}, false)
		}
		ADDQ(U32(uint32(vectors*e.bytes())), f)
		ADDQ(U32(uint32(vectors*e.bytes()/2)), h)
		SUBQ(U32(uint32(vectors*e.lanes())), n)
		JMP(LabelRef(again))
		Label(rest)
	}
	if e.wide {
		end := e.label()
		TESTQ(n, n)
		JZ(LabelRef(end))
		e.tail(n)
		body(Mem{Base: f}, Mem{Base: h}, true)
		Label(end)
	}
	e.end()
}

// widen emits a conversion of 16 bits to float32; op is the instruction that does it.
func (e *emitter) widen(name string, op func(m Mem, v vec, masked bool)) {
	e.beginMove(name, "func(y []float32, x []uint16)", "converts exactly.")
	e.mixed("y", "x", count("y"), func(w, h Mem, masked bool) {
		v := e.vec()
		op(h, v, masked)
		e.store(v, w, masked)
	})
}

// narrow emits a conversion of float32 to 16 bits; op is the instruction that does it.
func (e *emitter) narrow(name string, op func(v vec, m Mem, masked bool)) {
	e.beginMove(name, "func(y []uint16, x []float32)", "rounds to nearest even.")
	e.mixed("x", "y", count("y"), func(w, h Mem, masked bool) {
		op(e.load(w, masked), h, masked)
	})
}

// narrowPairs is narrow with roundBF16 of two vectors at a time, which looks for NaNs of both at once and
// packs them together.
func (e *emitter) narrowPairs(name string) {
	e.beginMove(name, "func(y []uint16, x []float32)", "rounds to nearest even.")
	f, h, n := base("x"), base("y"), count("x")
	again, nan, next, rest, end := e.label(), e.label(), e.label(), e.label(), e.label()
	Label(again)
	CMPQ(n, U32(uint32(2*e.lanes())))
	JL(LabelRef(rest))
	a, b, any, found := e.load(Mem{Base: f}, false), e.load(Mem{Base: f, Disp: e.bytes()}, false), YMM(), GP32()
	VCMPPS(Imm(3), a, b, any)
	VMOVMSKPS(any, found)
	TESTL(found, found)
	JNZ(LabelRef(nan))
	p, q := e.roundedBits(a), e.roundedBits(b)
	VPACKUSDW(q, p, p) // 0 to 3 of both, then 4 to 7
	VPERMQ(Imm(0xd8), p, p)
	VMOVDQU(p, Mem{Base: h})
	Label(next)
	ADDQ(U32(uint32(2*e.bytes())), f)
	ADDQ(U32(uint32(e.bytes())), h)
	SUBQ(U32(uint32(2*e.lanes())), n)
	JMP(LabelRef(again))
	Label(nan)
	e.roundBF16(a, Mem{Base: h}, false)
	e.roundBF16(b, Mem{Base: h, Disp: e.bytes() / 2}, false)
	JMP(LabelRef(next))
	Label(rest)
	CMPQ(n, U32(uint32(e.lanes())))
	JL(LabelRef(end))
	e.roundBF16(e.load(Mem{Base: f}, false), Mem{Base: h}, false)
	Label(end)
	e.end()
}

// roundedBits is the upper halves of numbers that are rounded, as 32-bit integers; v has no NaN.
func (e *emitter) roundedBits(v vec) vec {
	t := e.vec()
	VPSRLD(Imm(16), v, t)
	VPAND(integer(1), t, t)
	VPADDD(integer(0x7fff), t, t)
	VPADDD(v, t, t)
	VPSRLD(Imm(16), t, t)
	return t
}

// roundBF16 adds half of the last place, or just below it if the kept part is even, and drops 16 bits; a NaN
// only gets its quiet bit. Integer arithmetic, so that subnormal numbers stay.
func (e *emitter) roundBF16(v vec, m Mem, masked bool) {
	t, q := e.vec(), e.vec()
	VPSRLD(Imm(16), v, q)
	if e.wide {
		k := K()
		VCMPPS(Imm(3), v, v, k)
		VPANDD(integer(1), q, t)
		VPADDD(integer(0x7fff), t, t)
		VPADDD(v, t, t)
		VPSRLD(Imm(16), t, t)
		VPORD(integer(0x40), q, k, t)
		if masked {
			VPMOVDW(t, e.mask, m)
		} else {
			VPMOVDW(t, m)
		}
		return
	}
	nan := YMM()
	VCMPPS(Imm(3), v, v, nan)
	VPAND(integer(1), q, t)
	VPADDD(integer(0x7fff), t, t)
	VPADDD(v, t, t)
	VPSRLD(Imm(16), t, t)
	VPOR(integer(0x40), q, q)
	VPBLENDVB(nan, q, t, t)
	h := XMM()
	VEXTRACTI128(Imm(1), t, h)
	VPACKUSDW(h, t.AsX(), h)
	VMOVDQU(h, m)
}

var integers = map[uint32]Mem{}

// integer is a vector of equal 32-bit integers in memory.
func integer(x uint32) Mem {
	if m, ok := integers[x]; ok {
		return m
	}
	m := GLOBL("i"+hexName(x), RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, U32(x))
	}
	integers[x] = m
	return m
}

// vnni writes the layout of AMX's right operand: for every pair of rows and every panel of 32 columns, the
// pairs of columns 0 to 15 to lo and of 16 to 31 to hi.
func vnni() {
	e := &emitter{wide: true, suffix: "Z"}
	e.beginMove("vnni", "func(lo, hi []uint16, next, panels int, src []uint16, ld, pairs int)",
		"interleaves pairs of rows, see isa.")
	lo, hi, src, n := base("lo"), base("hi"), base("src"), count4("pairs")
	ld, step := load(Param("ld")), load(Param("next"))
	ADDQ(ld, ld)
	ADDQ(step, step)
	low, high := ZMM(), ZMM()
	VMOVUPS(interleave("vnniLow", 0), low)
	VMOVUPS(interleave("vnniHigh", 16), high)
	pair, finish := e.label(), e.label()
	Label(pair)
	TESTQ(n, n)
	JZ(LabelRef(finish))
	panels, s, l, h := count4("panels"), GP64(), GP64(), GP64()
	MOVQ(src, s)
	MOVQ(lo, l)
	MOVQ(hi, h)
	panel, done := e.label(), e.label()
	Label(panel)
	TESTQ(panels, panels)
	JZ(LabelRef(done))
	a, b, t := ZMM(), ZMM(), ZMM()
	VMOVUPS(Mem{Base: s}, a)
	VMOVUPS(Mem{Base: s, Index: ld, Scale: 1}, b)
	VMOVDQA64(a, t)
	VPERMT2W(b, low, t)
	VPERMT2W(b, high, a)
	VMOVUPS(t, Mem{Base: l})
	VMOVUPS(a, Mem{Base: h})
	ADDQ(Imm(64), s)
	ADDQ(step, l)
	ADDQ(step, h)
	DECQ(panels)
	JMP(LabelRef(panel))
	Label(done)
	LEAQ(Mem{Base: src, Index: ld, Scale: 2}, src)
	ADDQ(Imm(64), lo)
	ADDQ(Imm(64), hi)
	DECQ(n)
	JMP(LabelRef(pair))
	Label(finish)
	e.end()
}

// interleave is the index vector that takes columns at, at+1 … of two rows in turns.
func interleave(name string, at int) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, U32(uint32(at+i)|uint32(32+at+i)<<16))
	}
	return m
}
