package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// precision writes what rounding to formats of few bits is made of. Subnormal numbers are numbers in it.
func (e *emitter) precision() {
	e.absMax()
	e.absMaxes()
	e.roundBits()
	e.roundEach()
	e.chance()
	e.butterfly()
	e.runMaxes()
	e.runs()
	e.fixedAdd()
}

// fixedAdd emits sums in fixed point: a float64 beyond 2^52 has a whole number in its last places.
func (e *emitter) fixedAdd() {
	e.beginMove("fixedAdd", "func(q []int64, x []float32, h *float64)",
		"is q += x·h[0] rounded by adding h[1], of whole vectors.")
	q, x, n, h := base("q"), base("x"), count("x"), load(Param("h"))
	scale, magic := e.vec(), e.vec()
	VBROADCASTSD(Mem{Base: h}, scale)
	VBROADCASTSD(Mem{Base: h, Disp: 8}, magic)
	again, done := e.label(), e.label()
	Label(again)
	CMPQ(n, U32(uint32(e.lanes())))
	JLT(LabelRef(done))
	for i := range 2 {
		y := e.vec()
		VCVTPS2PD(Mem{Base: x, Disp: i * e.bytes() / 2}, y)
		VFMADD213PD(magic, scale, y)
		VPSUBQ(magic, y, y)
		VPADDQ(Mem{Base: q, Disp: i * e.bytes()}, y, y)
		VMOVUPS(y, Mem{Base: q, Disp: i * e.bytes()})
	}
	ADDQ(U32(uint32(e.bytes())), x)
	ADDQ(U32(uint32(2*e.bytes())), q)
	SUBQ(U32(uint32(e.lanes())), n)
	JMP(LabelRef(again))
	Label(done)
	e.end()
}

// and is x & y of integers; y may be memory.
func (e *emitter) and(y Op, x, to vec) {
	if e.wide {
		VPANDD(y, x, to)
	} else {
		VPAND(y, x, to)
	}
}

const magnitude = 0x7fffffff

// absMax emits the greatest magnitude, compared as integers so that a NaN is greater than all.
func (e *emitter) absMax() {
	e.beginMove("absMax", "func(x []float32) float32", "is the greatest |x|, a NaN if there is one, 0 of none.")
	s := e.sums(4)
	e.each(4, []string{"x"}, func(m []Mem, u int, masked bool) {
		x := e.load(m[0], masked)
		e.and(integer(magnitude), x, x)
		VPMAXUD(x, s[u], s[u])
	})
	for n := 2; n > 0; n /= 2 {
		for i := range n {
			VPMAXUD(s[i+n], s[i], s[i])
		}
	}
	e.result(e.reduce(s[0], VPMAXUD))
}

// absMaxes emits the same by places.
func (e *emitter) absMaxes() {
	e.beginMove("absMaxes", "func(y, x []float32)",
		"is y = max(y, |x|) for y of magnitudes; a NaN is greater than all.")
	e.each(4, []string{"y", "x"}, func(m []Mem, _ int, masked bool) {
		y, x := e.load(m[0], masked), e.load(m[1], masked)
		e.and(integer(magnitude), x, x)
		VPMAXUD(x, y, y)
		e.store(y, m[0], masked)
	})
	e.end()
}

// roundBits emits y = q(x·f)·back with the fields of roundConst at h: q is the number of a format that is
// nearest to a number, of two the even one.
func (e *emitter) roundBits() {
	e.beginMove("roundBits", "func(y, x []float32, f, back float32, h *float32)", "is y = q(x·f)·back, see roundConst.")
	f, back, c := e.float("f"), e.float("back"), e.fields(6)
	e.each(2, []string{"y", "x"}, func(m []Mem, _ int, masked bool) {
		x := e.load(m[1], masked)
		VMULPS(f, x, x)
		x = e.rounded(x, c)
		VMULPS(back, x, x)
		e.store(x, m[0], masked)
	})
	e.end()
}

// roundEach is roundBits with a factor and its inverse for each number.
func (e *emitter) roundEach() {
	e.beginMove("roundEach", "func(y, x, f, back []float32, h *float32)", "is y = q(x·f)·back, see roundConst.")
	c := e.fields(6)
	e.each(2, []string{"y", "x", "f", "back"}, func(m []Mem, _ int, masked bool) {
		x, f, back := e.load(m[1], masked), e.load(m[2], masked), e.load(m[3], masked)
		VMULPS(f, x, x)
		x = e.rounded(x, c)
		VMULPS(back, x, x)
		e.store(x, m[0], masked)
	})
	e.end()
}

// rounded brings x to the nearest numbers of a format: those below the least normal one by adding and taking
// away what leaves a float32 no more bits, the others in integers.
func (e *emitter) rounded(x vec, c []vec) vec {
	half, keep, shift, least, magic, most := c[0], c[1], c[2], c[3], c[4], c[5]
	a, t, small := e.vec(), e.vec(), e.vec()
	e.and(integer(magnitude), x, a)
	VADDPS(magic, a, small)
	VSUBPS(magic, small, small)
	VPSRLVD(shift, a, t)
	e.and(integer(1), t, t)
	VPADDD(half, t, t)
	VPADDD(a, t, t)
	e.and(keep, t, t)
	VPMINUD(most, t, t)
	if e.wide {
		k := K()
		VPCMPGTD(a, least, k)
		VMOVAPS(small, k, t)
		VPANDD(integer(1<<31), x, x)
		VPORD(x, t, t)
		return t
	}
	under := e.vec()
	VPCMPGTD(a, least, under)
	VBLENDVPS(under, small, t, t)
	VPAND(integer(1<<31), x, x)
	VPOR(x, t, t)
	return t
}
