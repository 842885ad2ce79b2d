package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// erfcC are the coefficients of ln(erfc(z)·e^(z²)/t) for t = 1/(1+z/2), the highest power first: Numerical Recipes §6.2, relative
// error of erfc 1.2e-7.
var erfcC = []float32{0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223}

// activations writes the primitives of activations with one operand.
func (e *emitter) activations() {
	e.gate()
	e.phi()
	e.gateBwd()
	e.scaled("shift", "y = x + s", func(x, _, s vec) vec { VADDPS(s, x, x); return x })
}

func (e *emitter) gate() {
	e.begin("gate", "func(y, x []float32, a, b float32)", "is y = 1/(1+exp(-(a·x + b·x³))).")
	k, a, b := e.expo(), e.float("a"), e.float("b")
	e.each(2, []string{"y", "x"}, func(m []Mem, _ int, masked bool) {
		x, z := e.load(m[1], masked), e.vec()
		VMULPS(x, x, z)
		VFMADD213PS(a, b, z) // b·x² + a
		VMULPS(x, z, z)
		e.store(e.sigmoid(k, z), m[0], masked)
	})
	e.end()
}

// phi takes the branch of a negative x by its sign bit, so that small results keep their digits.
func (e *emitter) phi() {
	e.begin("phi", "func(y, x []float32)", "is the distribution function of the normal distribution.")
	k := e.expo()
	e.each(1, []string{"y", "x"}, func(m []Mem, _ int, masked bool) {
		x := e.load(m[1], masked)
		a, t, p := e.vec(), e.vec(), e.vec()
		VSUBPS(x, e.zero(), a)
		VMAXPS(x, a, a) // |x|
		VMULPS(broadcast(0.70710678118654752), a, a)
		VMOVUPS(broadcast(0.5), t)
		VFMADD213PS(broadcast(1), a, t) // 1 + a/2
		VMOVUPS(broadcast(1), p)
		VDIVPS(t, p, t)
		VMOVUPS(broadcast(erfcC[0]), p)
		for _, c := range erfcC[1:] {
			VFMADD213PS(broadcast(c), t, p)
		}
		VFNMADD231PS(a, a, p)
		e.exp(k, p)
		VMULPS(t, p, p)
		VMULPS(broadcast(0.5), p, p)
		VMOVUPS(broadcast(1), t)
		VSUBPS(p, t, t)
		if e.wide {
			neg := K()
			VPMOVD2M(x, neg)
			VBLENDMPS(p, t, neg, t)
		} else {
			VBLENDVPS(x, p, t, t)
		}
		e.store(t, m[0], masked)
	})
	e.end()
}

func (e *emitter) gateBwd() {
	e.begin("gateBwd", "func(dx, dy, x, s []float32, a, b float32)", "is dx = dy·s·(1 + x·(1-s)·(a + 3b·x²)), the gradient of x·s with s of gate.")
	a, b := e.float("a"), e.float("b")
	VMULPS(broadcast(3), b, b)
	e.each(1, []string{"dx", "dy", "x", "s"}, func(m []Mem, _ int, masked bool) {
		dy, x, s := e.load(m[1], masked), e.load(m[2], masked), e.load(m[3], masked)
		z, t := e.vec(), e.vec()
		VMULPS(x, x, z)
		VFMADD213PS(a, b, z)
		VMULPS(x, z, z)
		VMOVUPS(broadcast(1), t)
		VSUBPS(s, t, t)
		VFMADD213PS(broadcast(1), z, t) // (1-s)·z + 1
		VMULPS(s, t, t)
		VMULPS(dy, t, t)
		e.store(t, m[0], masked)
	})
	e.end()
}
