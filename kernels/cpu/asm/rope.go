package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const ropeArgs = "(y, x, cos, sin []float32, heads, width int, sign float32)"

const ropeHalfArgs = "(y, x []uint16, cos, sin []float32, heads, width int, sign float32)"

// rotations writes the two conventions of rotary embedding.
func (e *emitter) rotations() {
	e.rope("rope", false)
	e.ropePairs()
}

// heads runs body for every head, with x and y at its beginning.
func (e *emitter) heads(half bool, body func(y, x reg.GPVirtual)) {
	n, y, x, width := count4("heads"), base("y"), base("x"), bytesOf("width")
	if half {
		SHRQ(Imm(1), width)
	}
	next, finish := e.label(), e.label()
	Label(next)
	TESTQ(n, n)
	JZ(LabelRef(finish))
	body(y, x)
	ADDQ(width, y)
	ADDQ(width, x)
	DECQ(n)
	JMP(LabelRef(next))
	Label(finish)
	e.end()
}

// rope rounds its products for the reason that mulAcc does.
func (e *emitter) rope(name string, half bool) {
	args, scale := ropeArgs, uint8(4)
	if half {
		args, scale = ropeHalfArgs, 2
	}
	e.begin(name, "func"+args, "rotates pairs (i, i+r), see isa.")
	sign := e.float("sign")
	e.heads(half, func(y, x reg.GPVirtual) {
		n, cos, sin := count("cos"), base("cos"), base("sin")
		a, b, ya, yb := GP64(), GP64(), GP64(), GP64()
		MOVQ(x, a)
		LEAQ(Mem{Base: x, Index: n, Scale: scale}, b)
		MOVQ(y, ya)
		LEAQ(Mem{Base: y, Index: n, Scale: scale}, yb)
		e.loop(n, []pointer{{a, half}, {b, half}, {ya, half}, {yb, half}, {reg: cos}, {reg: sin}}, 1,
			func(_ int, masked bool) {
				u, v := e.get(Mem{Base: a}, half, masked), e.get(Mem{Base: b}, half, masked)
				c, s := e.load(Mem{Base: cos}, masked), e.load(Mem{Base: sin}, masked)
				p, q := e.vec(), e.vec()
				VMULPS(sign, s, s)
				t := e.vec()
				VMULPS(v, s, p)
				VMULPS(u, c, t)
				VSUBPS(p, t, p) // u·c - v·s
				VMULPS(u, s, q)
				VMULPS(v, c, t)
				VADDPS(t, q, q)
				e.put(p, Mem{Base: ya}, half, masked)
				e.put(q, Mem{Base: yb}, half, masked)
			})
	})
}

// ropePairs handles whole vectors of pairs only: the length of cos must be a multiple of half a vector.
func (e *emitter) ropePairs() {
	e.begin("ropePairs", "func"+ropeArgs, "rotates pairs (2i, 2i+1), see isa.")
	sign := e.float("sign")
	e.heads(false, func(y, x reg.GPVirtual) {
		n, cos, sin, a, b := count("cos"), base("cos"), base("sin"), GP64(), GP64()
		MOVQ(x, a)
		MOVQ(y, b)
		again, done := e.label(), e.label()
		Label(again)
		TESTQ(n, n)
		JZ(LabelRef(done))
		v, c, s, t := e.vec(), e.vec(), e.vec(), e.vec()
		VMOVUPS(Mem{Base: a}, v)
		for _, d := range []struct {
			p reg.GPVirtual
			v vec
		}{{cos, c}, {sin, s}} { // each value twice
			VPMOVZXDQ(Mem{Base: d.p}, d.v)
			VMOVSLDUP(d.v, d.v)
			ADDQ(Imm(uint64(e.bytes()/2)), d.p)
		}
		VMULPS(sign, s, s)
		VPERMILPS(Imm(0xb1), v, t) // neighbours swapped
		VMULPS(s, t, t)
		VFMADDSUB213PS(t, c, v) // even lanes v·c - t, odd lanes v·c + t
		VMOVUPS(v, Mem{Base: b})
		ADDQ(Imm(uint64(e.bytes())), a)
		ADDQ(Imm(uint64(e.bytes())), b)
		SUBQ(Imm(uint64(e.lanes()/2)), n)
		JMP(LabelRef(again))
		Label(done)
	})
}
