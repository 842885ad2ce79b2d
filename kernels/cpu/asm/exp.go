package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// The same method and coefficients as exp32 of package cpu.
const (
	log2e  = 1.44269504088896341
	ln2Hi  = 0.693359375
	ln2Lo  = -2.12194440e-4
	expMin = -104
	expMax = 104
)

var expC = []float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
	5.0000001201e-1, 1, 1}

// expo holds what exponentials need in registers.
type expo struct {
	low, high vec
	small     bool // powers are up to about 1
}

// expo prepares the constants of exp. AVX-512 has registers for all of them; AVX2 reads most from memory.
func (e *emitter) expo() expo {
	if e.wide { // all constants in registers before the loop
		for _, c := range append([]float32{log2e, ln2Hi, ln2Lo}, expC[1:]...) {
			e.constant(c)
		}
	}
	return expo{low: e.register(expMin), high: e.register(expMax)}
}

// exp replaces x by e^x: 0 below -104; a NaN stays one because it is the second operand of the clamps.
func (e *emitter) exp(k expo, x vec) {
	n, p, r2 := e.vec(), e.vec(), e.vec()
	VMAXPS(x, k.low, x)
	VMINPS(x, k.high, x)
	VMULPS(e.constant(log2e), x, n)
	if e.wide {
		VRNDSCALEPS(Imm(0), n, n)
	} else {
		VROUNDPS(Imm(0), n, n)
	}
	VFNMADD231PS(e.constant(ln2Hi), n, x)
	VFNMADD231PS(e.constant(ln2Lo), n, x)
	VMOVUPS(broadcast(expC[0]), p)
	for _, c := range expC[1:6] {
		VFMADD213PS(e.constant(c), x, p)
	}
	VMULPS(x, x, r2)
	VFMADD213PS(x, r2, p)
	VADDPS(e.constant(1), p, p)
	if e.wide {
		VSCALEFPS(n, p, x)
		return
	}
	e.scale2(n, p, x)
}

// scale2 is x = p·2^n, in two steps since n may be beyond the exponents of a float32.
func (e *emitter) scale2(n, p, x vec) {
	h, bias := YMM(), YMM()
	VCVTPS2DQ(n, n)
	VPSRAD(Imm(1), n, h)
	VPSUBD(h, n, n)
	VMOVUPS(broadcast(1), bias)
	for _, s := range []vec{h, n} {
		VPSLLD(Imm(23), s, s)
		VPADDD(bias, s, s)
	}
	VMULPS(h, p, p)
	VMULPS(n, p, x)
}

// exponentials writes the primitives with exponentials.
func (e *emitter) exponentials() {
	e.expSum()
	e.swiglu("swiglu", false)
	e.swigluBwd("swigluBwd", false)
}

// expSum emits c·exp(x·scale + shift) with the sum of the results, the core of a softmax.
func (e *emitter) expSum() {
	e.begin("exp", "func(y, x []float32, scale, shift, c float32) float32",
		"is y = c·exp(x·scale + shift) and returns Σ y.")
	k, scale, shift, c := e.expo(), e.float("scale"), e.float("shift"), e.float("c")
	s := e.sums(2)
	e.each(2, []string{"y", "x"}, func(m []Mem, u int, masked bool) {
		x := e.load(m[1], masked)
		VFMADD213PS(shift, scale, x)
		e.exp(k, x)
		VMULPS(c, x, x)
		e.keep(x, masked)
		VADDPS(x, s[u], s[u])
		e.store(x, m[0], masked)
	})
	e.total(s)
}

// sigmoid is 1/(1+e^-x), with e^-x bounded so that its inverse stays finite.
func (e *emitter) sigmoid(k expo, x vec) vec {
	n, s := e.vec(), e.vec()
	VMULPS(e.constant(-log2e), x, n)
	VMAXPS(n, k.low, n)
	VMINPS(n, k.high, n)
	e.roundWhole(n, s)
	VSUBPS(s, n, n)
	e.power(k, s, n, s)
	VADDPS(e.constant(1), s, s)
	e.inverse(s)
	return s
}

// sigmoidConstants puts what sigmoid needs into registers.
func (e *emitter) sigmoidConstants() expo {
	if e.wide {
		e.constant(-log2e)
		e.constant(1)
		e.constant(2)
	}
	k := e.exp2Constants()
	k.high = e.register(sigmoidMax)
	return k
}

// sigmoidMax is the largest power of two whose inverse is a normal number.
const sigmoidMax = 126

// swiglu emits g·sigmoid(g)·u.
func (e *emitter) swiglu(name string, half bool) {
	e.begin(name, "func(y, g, u []"+elements(half)+")", "is y = g·sigmoid(g)·u.")
	k := e.sigmoidConstants()
	e.halves(half, "y", "g", "u")
	e.each(2, []string{"y", "g", "u"}, func(m []Mem, _ int, masked bool) {
		g, u := e.get(m[1], half, masked), e.get(m[2], half, masked)
		s := e.sigmoid(k, g)
		VMULPS(g, s, s)
		VMULPS(u, s, s)
		e.put(s, m[0], half, masked)
	})
	e.end()
}

// swigluBwd emits both gradients of SwiGLU in one pass over the operands.
func (e *emitter) swigluBwd(name string, half bool) {
	e.begin(name, "func(dg, du, dy, g, u []"+elements(half)+")",
		"is du = dy·g·s and dg = dy·u·s·(1+g·(1-s)) with s = sigmoid(g).")
	k := e.sigmoidConstants()
	e.halves(half, "dg", "du", "dy", "g", "u")
	e.each(1, []string{"dg", "du", "dy", "g", "u"}, func(m []Mem, _ int, masked bool) {
		dy, g, u := e.get(m[2], half, masked), e.get(m[3], half, masked), e.get(m[4], half, masked)
		s, t := e.sigmoid(k, g), e.vec()
		VMULPS(dy, s, dy) // dy·s
		VMULPS(dy, u, u)
		VMOVUPS(e.constant(1), t)
		VSUBPS(s, t, t)
		VFMADD213PS(e.constant(1), g, t) // g·(1-s) + 1
		VMULPS(t, u, u)
		VMULPS(dy, g, g)
		e.put(u, m[0], half, masked)
		e.put(g, m[1], half, masked)
	})
	e.end()
}
