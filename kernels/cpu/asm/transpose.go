package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transpose writes transpose, see isa: 16x16 blocks at once with AVX-512, 8x8 with AVX2.
func (e *emitter) transpose() {
	e.beginMove("transpose", "func(dst []float32, step int, src []float32, ld, blocks int)",
		"writes the columns of 16 rows, see isa.")
	dst, src, step, ld, n := base("dst"), base("src"), bytesOf("step"), bytesOf("ld"), count4("blocks")
	if e.wide {
		e.blocks(dst, src, step, ld, n)
		e.end()
		return
	}
	ADDQ(n, n) // blocks of 8 columns
	m, d, s := GP64(), GP64(), GP64()
	MOVQ(n, m)
	MOVQ(dst, d)
	MOVQ(src, s)
	e.blocks(d, s, step, ld, n)
	done := e.label()
	CMPQ(step, Imm(64)) // narrower columns end here: more would overwrite the next
	JL(LabelRef(done))
	LEAQ(Mem{Base: src, Index: ld, Scale: 8}, src)
	ADDQ(Imm(32), dst)
	e.blocks(dst, src, step, ld, m)
	Label(done)
	e.end()
}

// blocks transposes n square blocks.
func (e *emitter) blocks(dst, src, step, ld, n reg.GPVirtual) {
	next, done := e.label(), e.label()
	Label(next)
	TESTQ(n, n)
	JZ(LabelRef(done))
	r := make([]vec, e.lanes())
	p := GP64()
	MOVQ(src, p)
	for i := range r {
		r[i] = e.vec()
		VMOVUPS(Mem{Base: p}, r[i])
		ADDQ(ld, p)
	}
	if e.wide {
		r = transpose16(r)
	} else {
		r = transpose8(r)
	}
	for _, v := range r {
		VMOVUPS(v, Mem{Base: dst})
		ADDQ(step, dst)
	}
	ADDQ(U32(uint32(e.bytes())), src)
	DECQ(n)
	JMP(LabelRef(next))
	Label(done)
}

// pairs interleaves rows two by two and then four by four within 128-bit lanes: element 4q+c of the result
// holds column c of every lane for rows 4q to 4q+3.
func pairs(r []vec, fresh func() vec) []vec {
	t := make([]vec, len(r))
	for i := 0; i < len(r); i += 2 {
		t[i] = fresh()
		VUNPCKLPS(r[i+1], r[i], t[i])
		VUNPCKHPS(r[i+1], r[i], r[i])
		t[i+1] = r[i]
	}
	u := make([]vec, len(r))
	for i := 0; i < len(r); i += 4 {
		a, b := fresh(), fresh()
		VUNPCKLPD(t[i+2], t[i], a)
		VUNPCKHPD(t[i+2], t[i], t[i])
		VUNPCKLPD(t[i+3], t[i+1], b)
		VUNPCKHPD(t[i+3], t[i+1], t[i+1])
		u[i], u[i+1], u[i+2], u[i+3] = a, t[i], b, t[i+1]
	}
	return u
}

// transpose8 emits the last step of transposing 8 by 8 in AVX2 registers: swapping halves between rows.
func transpose8(r []vec) []vec {
	u := pairs(r, func() vec { return YMM() })
	v := make([]vec, 8)
	for c := range 4 {
		v[c] = YMM()
		VPERM2F128(Imm(0x20), u[4+c], u[c], v[c])
		VPERM2F128(Imm(0x31), u[4+c], u[c], u[c])
		v[4+c] = u[c]
	}
	return v
}

// transpose16 emits the last two steps of transposing 16 by 16 in AVX-512 registers.
func transpose16(r []vec) []vec {
	u := pairs(r, func() vec { return ZMM() })
	v := make([]vec, 16)
	for c := range 4 {
		lo, hi := ZMM(), ZMM()
		VSHUFF32X4(Imm(0x88), u[4+c], u[c], lo) // lanes 0 and 2 of rows 0-3, then of rows 4-7
		VSHUFF32X4(Imm(0xdd), u[4+c], u[c], u[c])
		VSHUFF32X4(Imm(0x88), u[12+c], u[8+c], hi)
		VSHUFF32X4(Imm(0xdd), u[12+c], u[8+c], u[8+c])
		v[c], v[4+c] = ZMM(), ZMM()
		VSHUFF32X4(Imm(0x88), hi, lo, v[c])
		VSHUFF32X4(Imm(0xdd), hi, lo, lo)
		VSHUFF32X4(Imm(0x88), u[8+c], u[c], v[4+c])
		VSHUFF32X4(Imm(0xdd), u[8+c], u[c], u[c])
		v[8+c], v[12+c] = lo, u[c]
	}
	return v
}
